// Before the first paint: the theme that was chosen here, if any. Else the system's, by the style sheet.
{
  let theme = null;
  try {
    theme = localStorage.getItem("brig.theme");
  } catch {
    // Storage is switched off: the system's theme it is.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
