// Applies the theme that was chosen before; the default is the system's theme.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("relais.theme");
  } catch {
    // Without storage the system's theme is used.
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
