// Sets the theme before the first paint. A module would run after it.
"use strict";
{
  let kept = null;
  try {
    kept = localStorage.getItem("theme");
  } catch {
    // Storage is off: the system's theme holds.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
}
