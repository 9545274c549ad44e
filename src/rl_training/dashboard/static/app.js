"use strict";
// Routes, the clock that asks for news, and the theme.
(function (D) {
  const main = document.getElementById("main");
  const live = document.getElementById("live");
  const theme = document.getElementById("theme");
  const THEMES = { auto: "◐ auto", light: "○ light", dark: "● dark" };
  let page = null;
  let timer = 0;
  let turn = 0;
  let isWaiting = false;

  function currentRoute() {
    return D.isFile ? location.hash.slice(1) || "/" : location.pathname + location.search;
  }

  function open(route) {
    const address = new URL(route, "http://page");
    const path = address.pathname;
    if (page) page.stop();
    clearTimeout(timer);
    turn += 1;
    main.replaceChildren();
    if (path.startsWith("/run/")) {
      let name = path.slice(5);
      try {
        name = decodeURIComponent(name);
      } catch { /* a name with a bare % sign is taken as it is */ }
      page = D.pages.run(main, name);
    } else if (path === "/compare") page = D.pages.compare(main, address.searchParams.getAll("run"));
    else page = D.pages.runs(main);
    document.title = page.title + " · rl-training";
    for (const link of document.querySelectorAll(".bar nav a")) {
      if (link.dataset.route === path) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    window.scrollTo(0, 0);
    tick(turn);
  }

  async function tick(own) {
    let wait = 1000;
    isWaiting = false;
    const started = performance.now();
    try {
      wait = await page.tick();
      if (own !== turn) return;
      D.lastTick = performance.now() - started;
      D.ticks = (D.ticks || 0) + 1;
      show(true);
    } catch (error) {
      if (own !== turn) return;
      if (error.status === 404) {
        D.replace(main, D.h("section", { class: "card empty" }, D.h("h2", null, "No such run"), D.h("p", { class: "soft" }, "It may have been moved or deleted. "), D.link("/", null, "All runs")));
        return;
      }
      if (!(error instanceof TypeError) && !error.status) console.error(error);
      show(false);
      wait = 3000;
    }
    if (D.isFile) return;
    isWaiting = true;
    timer = setTimeout(() => tick(own), document.hidden ? Math.max(wait, 5000) : wait);
  }

  // Ask now instead of at the next turn.
  D.wake = function () {
    if (!isWaiting && !D.isFile) return;
    clearTimeout(timer);
    tick(turn);
  };

  function show(isThere) {
    live.className = "live " + (D.isFile ? "" : isThere ? "on" : "off");
    D.setText(live, D.isFile ? "as of " + D.when(D.written) : isThere ? "live" : "the server does not answer");
  }

  // Its address would be a route of the exported file.
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-route]");
    if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const route = link.dataset.route;
    if (D.isFile) location.hash = route;
    else {
      history.pushState(null, "", route);
      open(route);
    }
    main.focus({ preventScroll: true });
  });
  window.addEventListener(D.isFile ? "hashchange" : "popstate", () => open(currentRoute()));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) D.wake(); });

  function storedTheme() {
    try {
      return localStorage.getItem("rl-training-theme") || "auto";
    } catch {
      return "auto";
    }
  }

  function setTheme(name) {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    theme.textContent = THEMES[name] || THEMES.auto;
    theme.setAttribute("aria-label", `Theme: ${name}. Change it`);
    D.redrawAll();
  }

  theme.addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(storedTheme()) + 1) % names.length];
    try {
      localStorage.setItem("rl-training-theme", next);
    } catch { /* a page from a file may have no storage */ }
    setTheme(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", D.redrawAll);
  for (const link of document.querySelectorAll(".bar a[data-route]")) link.setAttribute("href", D.href(link.dataset.route));
  setTheme(storedTheme());
  open(currentRoute());
  // Plotly comes last and is large: the page is there before it, and the charts follow.
  window.addEventListener("load", D.redrawAll);
})(window.dashboard);
