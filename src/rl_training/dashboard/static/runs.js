"use strict";
// The page of all runs: the newest one open, and a table of the others.
(function (D) {
  const COLUMNS = [
    ["name", "Run", (row) => row.name],
    ["status", "Status", (row) => row.status],
    ["steps", "Env steps", (row) => (row.steps === undefined ? null : row.steps)],
    ["course", "Evaluations", null],
    ["last", "Last", (row) => row.last],
    ["best", "Best", (row) => row.best],
    ["speed", "Speed", (row) => row.speed],
    ["created", "Started", (row) => row.created],
  ];
  const NUMERIC = ["last", "best", "speed"];
  const HINTS = { last: "The last evaluation; of a finished run the final one, on other seeds", best: "The best evaluation during training" };

  function spark(row) {
    const course = row.course;
    if (!course || course.y.length < 2) return null;
    const [x0, x1] = [course.x[0], course.x[course.x.length - 1]];
    const [low, high] = [Math.min(...course.y), Math.max(...course.y)];
    const place = (i) => [2 + (116 * (course.x[i] - x0)) / (x1 - x0 || 1), 25 - (22 * (course.y[i] - low)) / (high - low || 1)];
    const points = course.y.map((_, i) => place(i).map((value) => value.toFixed(1)).join(" "));
    const last = place(course.y.length - 1);
    const words = `Evaluations from ${D.score(course.y[0])} to ${D.score(course.y[course.y.length - 1])}`;
    return D.svg("svg", { class: "spark", viewBox: "0 0 120 28", role: "img", "aria-label": words }, D.svg("path", { d: "M" + points.join("L") }), D.svg("circle", { cx: last[0], cy: last[1], r: 2.4 }));
  }

  function cells(row, picked, onpick) {
    const box = D.h("input", { type: "checkbox", "aria-label": "Compare " + row.name, checked: picked, onchange: (event) => onpick(row.name, event.target.checked) });
    const marks = row.findings ? D.h("span", { class: "badge" }, row.findings + (row.findings === 1 ? " finding" : " findings")) : null;
    return [
      D.h("td", { class: "pick" }, box),
      D.h("td", { class: "name" }, D.link(D.routeOfRun(row.name), null, row.name), " ", marks, D.h("small", null, D.about(row))),
      D.h("td", { class: "state" }, D.status(row.status)),
      D.h("td", { class: "steps" }, D.progress(row), D.h("small", null, `${D.short(row.steps)} of ${D.short(row.total)}`)),
      D.h("td", { class: "course" }, spark(row)),
      D.h("td", { class: "number", "data-name": "last" }, D.score(row.last)),
      D.h("td", { class: "number", "data-name": "best" }, D.score(row.best)),
      D.h("td", { class: "number", "data-name": "speed" }, D.speed(row)),
      D.h("td", { class: "created soft" }, D.when(row.created)),
    ];
  }

  function newestCard() {
    const series = {};
    let name = null;
    let cursor = "";
    let findings = [];
    let signature = "";
    const chart = D.chart(() => D.returnSpec(series, findings), 270);
    const head = D.h("header");
    const tiles = D.h("div");
    const node = D.h("section", { class: "card newest hidden", "aria-label": "Newest run" }, head, tiles, chart.node);
    const signatureOf = (row) => JSON.stringify([row.name, row.status, row.steps, row.last, row.speed]);
    return {
      node,
      stop: () => chart.stop(),
      isOf: (row) => row.name === name,
      // The numbers that the card does not have yet; null if it has all of them.
      read: (row) => (signatureOf(row) === signature ? null : D.source.metrics(row.name, row.name === name ? cursor : "")),
      show(row, answer) {
        if (!answer) return;
        node.classList.remove("hidden");
        if (row.name !== name) for (const each of Object.keys(series)) delete series[each];
        name = row.name;
        D.replace(head, D.h("h2", null, D.link(D.routeOfRun(name), null, name)), D.status(row.status), D.h("span", { class: "soft" }, D.about(row)), D.h("span", { class: "right soft" }, "newest run"));
        D.replace(tiles, D.tiles(row));
        signature = answer.complete ? signatureOf(row) : "";
        cursor = answer.cursor;
        findings = answer.findings;
        D.merge(series, answer, 8000);
        if (answer.restart || Object.keys(answer.series).length) chart.refresh();
      },
    };
  }

  D.tiles = function (row) {
    const share = row.total ? Math.min(100, (100 * (row.steps || 0)) / row.total) : null;
    const left = D.left(row);
    const tile = (name, value, note) => D.h("div", { class: "tile" }, D.h("dt", null, name), D.h("dd", null, value, note ? D.h("small", null, note) : null));
    return [
      D.h("dl", { class: "tiles" },
        tile("Env steps", D.short(row.steps), share === null ? null : `${share.toFixed(share < 10 ? 1 : 0)} % of ${D.short(row.total)}`),
        tile(row.is_final ? "Final evaluation" : "Last evaluation", D.score(row.last), row.scored_at === null || row.scored_at === undefined ? "none yet" : row.is_final ? "on the seeds of rl-training eval" : "mean return at step " + D.short(row.scored_at)),
        tile("Best evaluation", D.score(row.best), "during training"),
        tile("Speed", row.speed ? D.count(Math.round(row.speed)) : "–", "env steps per second"),
        row.status === "running" ? tile("Time left", D.duration(left), "at this speed") : tile("Trained for", D.duration(row.seconds), null)),
      D.h("div", { class: "space" }, D.progress(row)),
    ];
  };

  D.pages = D.pages || {};
  D.pages.runs = function (main) {
    const rows = new Map();
    const lines = new Map();
    const picked = new Set();
    let names = [];
    let change = 0;
    let sorting = { key: null, down: true };
    let folder = "";

    const newest = newestCard();
    const count = D.h("span", { class: "soft" });
    const search = D.h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter runs", oninput: () => arrange() });
    const compare = D.link("/compare", { class: "button main hidden" }, "Compare");
    const body = D.h("tbody");
    const heads = COLUMNS.map(([key, title, value]) =>
      D.h("th", { scope: "col", class: NUMERIC.includes(key) ? "number" : null, "data-key": key },
        value ? D.h("button", { type: "button", title: HINTS[key], onclick: () => sort(key) }, title) : title));
    const table = D.h("table", { class: "runs" }, D.h("thead", null, D.h("tr", null, D.h("th", { scope: "col" }, D.h("span", { class: "unseen" }, "Compare")), heads)), body);
    const card = D.h("section", { class: "card" }, D.h("header", null, D.h("h2", null, "All runs"), count, D.h("div", { class: "tools right" }, compare, search)), D.h("div", { class: "scroll" }, table));
    const empty = D.h("section", { class: "card empty hidden" }, D.h("h2", null, "No runs yet"), D.h("p", { class: "soft" }), D.h("code", null, "rl-training train ppo/cartpole"));
    main.append(D.h("h1", { class: "unseen" }, "Runs"), newest.node, card, empty);

    function sort(key) {
      sorting = { key, down: sorting.key === key ? !sorting.down : !["name", "status"].includes(key) };
      for (const head of heads) {
        if (head.dataset.key === key) head.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      }
      arrange();
    }

    function pick(name, on) {
      if (on) picked.add(name);
      else picked.delete(name);
      const route = D.routeOfCompare(names.filter((each) => picked.has(each)).reverse());
      compare.classList.toggle("hidden", !picked.size);
      compare.setAttribute("href", D.href(route));
      compare.dataset.route = route;
      D.setText(compare, `Compare ${picked.size} run${picked.size === 1 ? "" : "s"}`);
    }

    function arrange() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const fits = (row) => words.every((word) => [row.name, row.algorithm, row.env, row.status].join(" ").toLowerCase().includes(word));
      let shown = names.filter((name) => rows.has(name) && fits(rows.get(name)));
      if (sorting.key) {
        const value = COLUMNS.find(([key]) => key === sorting.key)[2];
        const known = (each) => each !== null && each !== undefined;
        shown = shown.map((name) => [name, value(rows.get(name))]).sort(([, a], [, b]) => {
          if (!known(a) || !known(b)) return Number(known(b)) - Number(known(a));
          const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
          return sorting.down ? -order : order;
        }).map(([name]) => name);
      }
      const wanted = shown.map((name) => lines.get(name));
      if (wanted.length !== body.children.length || wanted.some((line, place) => body.children[place] !== line)) body.replaceChildren(...wanted);
      D.setText(count, shown.length === names.length ? `${names.length} in ${folder}` : `${shown.length} of ${names.length}`);
    }

    return {
      title: "Runs",
      stop: () => newest.stop(),
      async tick() {
        const answer = await D.source.runs(change);
        const first = answer.names.length ? answer.rows.find((row) => row.name === answer.names[0]) || rows.get(answer.names[0]) : null;
        // Its numbers come before anything is changed, so that a tick is one frame; at first the table does not wait for them.
        const early = first && newest.isOf(first) ? await newest.read(first) : undefined;
        change = answer.change;
        folder = answer.folder;
        const moved = answer.names.join("\n") !== names.join("\n");
        names = answer.names;
        for (const name of rows.keys()) if (!names.includes(name)) { rows.delete(name); lines.delete(name); picked.delete(name); }
        for (const row of answer.rows) {
          rows.set(row.name, row);
          if (!lines.has(row.name)) lines.set(row.name, D.h("tr"));
          D.replace(lines.get(row.name), cells(row, picked.has(row.name), pick));
        }
        if (moved || answer.rows.length) arrange();
        empty.classList.toggle("hidden", names.length > 0);
        card.classList.toggle("hidden", names.length === 0);
        D.setText(empty.querySelector("p"), `This page shows the runs of ${folder} as soon as there are some. Train one:`);
        if (first) newest.show(first, early === undefined ? await newest.read(first) : early);
        else newest.node.classList.add("hidden");
        return answer.pending ? 20 : 1000;
      },
    };
  };
})(window.dashboard);
