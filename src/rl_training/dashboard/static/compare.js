"use strict";
// Runs side by side: groups of seeds with their bands, where curves part, and what differs.
(function (D) {
  const legendColor = (place) => D.seriesColor(place);

  function panelSpec(panel, groups, apart, unit, withSeeds) {
    const traces = [];
    const labels = [];
    for (const line of panel.lines) {
      const group = groups[line.group];
      if (line.low) traces.push(...D.bandTraces(line.x, line.low, line.high, D.seriesColor(line.group, 0.16)));
      if (withSeeds) {
        for (const seed of line.seeds) {
          traces.push(D.lineTrace(seed, { line: { color: D.seriesColor(line.group, 0.45), width: 1 }, hovertemplate: `step %{x:,}<br>${D.plain(seed.run)}: %{y:.5~g}<extra></extra>` }));
        }
      }
      traces.push(D.lineTrace({ x: line.x, y: line.middle }, { name: D.plain(group.label), line: { color: D.seriesColor(line.group), width: 2.4, dash: D.dash(line.group) }, hovertemplate: `step %{x:,}<br>${D.plain(group.label)}: %{y:.5~g}<extra></extra>` }));
      const last = D.lastOf({ x: line.x, y: line.middle });
      const name = group.label.length > 28 ? group.label.slice(0, 27) + "…" : group.label;
      if (last) labels.push({ text: `${name}: ${D.score(last.y)}`, y: last.y, color: D.seriesText(line.group), line: legendColor(line.group) });
    }
    const lines = apart && apart.at !== null && apart.env === panel.env ? [{ x: apart.at, text: "curves part" }] : [];
    return { traces, labels, lines, unit, alt: `${unit} over env steps on ${panel.env}. ${labels.map((label) => label.text).join("; ")}.` };
  }

  function groupList(answer) {
    const members = new Map();
    for (const panel of answer.panels) for (const line of panel.lines) members.set(line.group, [...(members.get(line.group) || []), ...line.seeds]);
    return D.table(["Group", "Seeds", "Runs"], answer.groups.map((group, place) => {
      const swatch = D.h("span", { class: "swatch" });
      swatch.style.background = legendColor(place);
      const runs = (members.get(place) || []).flatMap((seed, i) => [i ? ", " : null, D.link(D.routeOfRun(seed.run), null, seed.run)]);
      return [[swatch, group.label], group.seeds === 1 ? "1, no band" : group.seeds, runs.length ? runs : "no values"];
    }), [1]);
  }

  function verdictCard(answer) {
    const apart = answer.apart;
    if (!apart) return null;
    const parts = [];
    const verdict = apart.verdict;
    if (verdict) {
      parts.push(D.h("p", { class: "verdict" }, verdict.text));
      if (verdict.scores.length) {
        const range = (interval) => (interval ? `${D.score(interval[0])} to ${D.score(interval[1])}` : "–");
        parts.push(D.table(["Group", "Environment", "Seeds", "IQM", "95 % interval"], verdict.scores.map((each) => [each.group, each.env, each.seeds, D.score(each.iqm), range(each.interval)]), [2, 3, 4]),
          D.h("p", { class: "soft" }, `Score: ${verdict.score}. Probability that a run of the second group scores higher: ${(100 * verdict.probability).toFixed(0)} % (95 % interval ${(100 * verdict.interval[0]).toFixed(0)} to ${(100 * verdict.interval[1]).toFixed(0)} %).`));
      }
    }
    if (apart.sentence) parts.push(D.h("p", null, "Evaluations: " + apart.sentence + "."));
    return D.card("Which is better, and where they part", parts);
  }

  function differences(answer) {
    const parts = [];
    if (answer.groups.length > 1) {
      const heads = ["Setting", ...answer.groups.map((group) => group.label)];
      parts.push(answer.settings.length ? D.table(heads, answer.settings.map((row) => [D.h("code", null, row.key), ...row.values.map((value) => D.h("span", { class: "mono" }, value))])) : D.h("p", { class: "soft" }, "No setting differs."));
    } else parts.push(D.h("p", { class: "soft" }, "All runs have the same settings but for the seed."));
    const diff = answer.apart && answer.apart.diff;
    for (const [kind, title] of [["versions", "Version"], ["machine", "Machine"]]) {
      if (diff && diff[kind].length) parts.push(D.table([title, ...answer.groups.map((group) => group.label)], diff[kind]));
    }
    return D.card("Settings that differ", parts);
  }

  D.pages.compare = function (main, names) {
    let chosen = [...names];
    let metric = "eval_mean_return";
    let state = "";
    let listing = null;
    let answer = null;
    let charts = [];
    let isBusy = false;

    const note = D.h("p", { class: "soft", role: "status" });
    const select = D.h("select", { "aria-label": "Metric", onchange: () => { metric = select.value; reload(); } });
    const seeds = D.h("input", { type: "checkbox", id: "each-seed", onchange: () => charts.forEach((chart) => chart.refresh()) });
    const search = D.h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter runs", oninput: () => showChoice() });
    const choice = D.h("div", { class: "choice" });
    const picker = D.h("details", { open: !names.length }, D.h("summary", null, "Choose runs"), D.h("div", { class: "tools" }, search, D.h("button", { type: "button", onclick: () => pickShown() }, "All shown"), D.h("button", { type: "button", onclick: () => { chosen = []; change(); } }, "None")), choice);
    const tools = D.h("div", { class: "tools right hidden" }, D.h("label", { for: "each-seed", class: "tools" }, seeds, "each seed"), select);
    const head = D.h("section", { class: "card" }, D.h("header", null, D.h("h2", null, "Compare runs"), tools), D.isFile ? null : picker, note);
    const panels = D.h("div", { class: "contents" });
    const rest = D.h("div", { class: "contents" });
    for (const part of [panels, rest]) part.style.display = "contents";
    main.append(D.h("h1", { class: "unseen" }, "Compare"), head, panels, rest);

    const fits = (name) => search.value.toLowerCase().split(/\s+/).every((word) => name.toLowerCase().includes(word));
    const shown = () => (listing ? listing.names.filter(fits) : []);

    function showChoice() {
      D.replace(choice, shown().slice(0, 500).map((name) => D.h("label", null, D.h("input", { type: "checkbox", checked: chosen.includes(name), onchange: (event) => {
        chosen = event.target.checked ? [...chosen, name] : chosen.filter((each) => each !== name);
        change(false);
      } }), name)));
    }

    function pickShown() {
      chosen = [...new Set([...chosen, ...shown()])];
      change();
    }

    function change(redraw) {
      if (redraw !== false) showChoice();
      if (!D.isFile) history.replaceState(null, "", D.routeOfCompare(chosen));
      reload();
    }

    function reload() {
      state = "";
      D.wake();
    }

    function show() {
      const unit = (answer.metrics.find((each) => each.name === metric) || { title: metric, unit: "" });
      const words = [unit.title, unit.unit].filter(Boolean).join(", ");
      tools.classList.remove("hidden");
      D.replace(select, answer.metrics.map((each) => D.h("option", { value: each.name, selected: each.name === metric }, each.title === each.name ? each.name : `${each.title} (${each.name})`)));
      charts.forEach((chart) => chart.stop());
      const drawn = answer.panels.filter((panel) => panel.lines.length);
      charts = drawn.map((panel) => D.chart(() => panelSpec(panel, answer.groups, answer.apart, words, seeds.checked), 380));
      panels.replaceChildren(...drawn.map((panel, place) => {
        const card = D.card(panel.env, charts[place].node);
        card.querySelector("header").append(D.h("span", { class: "soft" }, `${words} · lines are medians over seeds, bands their middle half`));
        return card;
      }));
      D.replace(rest, verdictCard(answer), differences(answer), D.card("Groups", groupList(answer)));
      D.replace(note, answer.notes.join(" · ") || null);
    }

    return {
      title: "Compare",
      stop: () => charts.forEach((chart) => chart.stop()),
      async tick() {
        if (isBusy) return 200;
        isBusy = true;
        try {
          if (!listing) {
            listing = await D.source.runs(0);
            if (D.isFile) chosen = listing.names;
            showChoice();
          }
          if (!chosen.length) {
            tools.classList.add("hidden"); // nothing to choose a metric of
            charts.forEach((chart) => chart.stop());
            charts = [];
            panels.replaceChildren();
            rest.replaceChildren();
            D.setText(note, "Choose runs above. Runs that differ only in their seed become one line with a band.");
            return 3000;
          }
          const asked = [chosen.join("\n"), metric].join("\n\n");
          const fresh = await D.source.compare(chosen, metric, state);
          if (asked !== [chosen.join("\n"), metric].join("\n\n")) return 20;
          if (fresh.read < fresh.of) {
            D.setText(note, `Reading ${fresh.read} of ${fresh.of} runs …`);
            return 20;
          }
          if (!fresh.same && (fresh.state !== state || !answer)) {
            answer = fresh;
            state = fresh.state;
            if (answer.groups) show();
          }
          return 2000;
        } finally {
          isBusy = false;
        }
      },
    };
  };
})(window.dashboard);
