window.hangdog.begin();
