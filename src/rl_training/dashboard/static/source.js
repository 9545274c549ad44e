"use strict";
// Where the data comes from: the server, or the file itself. The page cannot tell them apart.
(function (D) {
  const isFile = document.documentElement.dataset.mode === "file";
  D.isFile = isFile;

  D.href = (route) => (isFile ? "#" + route : route);
  D.routeOfRun = (name) => "/run/" + encodeURIComponent(name);
  D.routeOfCompare = (names) => "/compare" + (names.length ? "?" + names.map((name) => "run=" + encodeURIComponent(name)).join("&") : "");

  D.link = (route, properties, ...children) => D.h("a", { href: D.href(route), "data-route": route, ...properties }, ...children);

  if (isFile) {
    const data = JSON.parse(document.getElementById("data").textContent);
    const own = (name) => (Object.hasOwn(data.runs, name) ? data.runs[name] : null);
    const found = (name, part) => (own(name) ? Promise.resolve(own(name)[part]) : Promise.reject(new Error("no such run")));
    D.written = data.written;
    D.source = {
      runs: async () => data.listing,
      run: (name) => found(name, "run"),
      metrics: (name) => found(name, "metrics"),
      checkpoints: (name) => found(name, "checkpoints"),
      compare: async (names, metric) => data.compare[metric] || data.compare[Object.keys(data.compare)[0]],
      media: (name, video) => video.data,
    };
    return;
  }

  async function get(path) {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) {
      const error = new Error((await answer.text()).trim() || "error " + answer.status);
      error.status = answer.status;
      throw error;
    }
    return answer.json();
  }

  const run = (name) => "/api/run/" + encodeURIComponent(name);
  D.source = {
    runs: (after) => get("/api/runs?after=" + (after || 0)),
    run: (name) => get(run(name)),
    metrics: (name, cursor) => get(run(name) + "/metrics?from=" + encodeURIComponent(cursor || "")),
    checkpoints: (name) => get(run(name) + "/checkpoints"),
    compare: (names, metric, state) =>
      get("/api/compare?" + new URLSearchParams([...names.map((name) => ["run", name]), ["metric", metric], ["state", state || ""]])),
    media: (name, video) => "/media/" + encodeURIComponent(name) + "/" + encodeURIComponent(video.name),
  };
})(window.dashboard);
