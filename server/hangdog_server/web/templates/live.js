"use strict";
(() => {
  // ---- live: the server says when what is shown here changed
  const news = document.querySelector("[data-events]");
  if (news && window.EventSource) {
    const heard = new EventSource(news.dataset.events);
    heard.addEventListener("state", () => { heard.close(); location.reload(); });
    addEventListener("pagehide", () => heard.close());
  }
})();
