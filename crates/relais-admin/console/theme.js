// Colours as the person chose them before; without a choice, as the system has them.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("relais.theme");
  } catch {
    // No storage, no choice.
  }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
