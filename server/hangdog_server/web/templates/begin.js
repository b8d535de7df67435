window.hangdog.begin();
// an open page was given another verdict: its elements and its data are new, what whoever reads chose stays
document.addEventListener("verdict", () => window.hangdog.draw(window.hangdog.state()));
