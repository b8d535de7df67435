(() => {
  // ---- exports: what the page holds, as files
  const { make, on, known } = window.hangdog;
  on("click", "[data-export]", (event, button) => {
    const link = make("a");
    link.href = URL.createObjectURL(new Blob([known.data.exports[button.dataset.export]], { type: button.dataset.type }));
    link.download = button.dataset.name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
})();
