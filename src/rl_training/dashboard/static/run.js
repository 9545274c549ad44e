"use strict";
// The page of one run.
(function (D) {
  const IS_TIME = /^\d{4}-\d\d-\d\dT/;
  const SHARES = ["time_env", "time_act", "time_learn", "time_other"];

  function sharesSpec(series) {
    const parts = SHARES.filter((name) => Object.hasOwn(series, name));
    const labels = [];
    let below = 0;
    const traces = parts.map((name, place) => {
      const last = D.lastOf(series[name]);
      if (last) {
        labels.push({ text: `${series[name].title.toLowerCase()} ${(100 * last.y).toFixed(0)} %`, y: below + last.y / 2, color: D.seriesText(place), line: D.seriesColor(place) });
        below += last.y;
      }
      return D.lineTrace(series[name], { stackgroup: "shares", line: { width: 0.5, color: D.seriesColor(place) }, fillcolor: D.seriesColor(place, 0.55), hovertemplate: `step %{x:,}<br>${series[name].title.toLowerCase()}: %{y:.1%}<extra></extra>` });
    });
    return { traces, labels, percent: true, unit: "share of the time", alt: "Shares of time. " + labels.map((label) => label.text).join("; ") + "." };
  }

  function smallFigure(name, series) {
    const value = D.h("output");
    const isSaid = series[name].title.toLowerCase() === name.replaceAll("_", " ");
    const unit = D.h("small", null, series[name].unit || (isSaid ? "\u00a0" : name));
    const chart = D.chart(() => {
      const points = series[name];
      const last = D.lastOf(points);
      const alt = `${points.title} over env steps. ${last ? `Last ${D.number(last.y)} at step ${D.count(last.x)}` : "No values"}.`;
      return { traces: [D.lineTrace(points, { line: { color: D.seriesColor(0), width: 1.5 } })], small: true, alt };
    }, 130);
    const title = D.h("span", { title: name }, series[name].title);
    const node = D.h("figure", { "data-metric": name }, D.h("figcaption", null, title, value, unit), chart.node);
    return { chart, node, show() {
      const last = D.lastOf(series[name]);
      D.setText(value, last ? D.number(last.y) : "–");
    } };
  }

  function findingsList(findings) {
    return findings.map((each, place) =>
      D.h("li", null, D.h("span", { class: "mark", "aria-hidden": "true" }, place + 1), D.h("div", null, D.h("strong", null, each.title), D.h("span", { class: "soft" }, ` · step ${D.count(each.env_steps)}`)), D.h("p", null, each.text)));
  }

  function evaluationTable(series) {
    const means = series.eval_mean_return;
    const stds = series.eval_std_return;
    if (!means) return null;
    const rows = means.x.map((step, place) => [D.count(step), D.score(means.y[place]), stds && stds.x[place] === step ? D.score(stds.y[place]) : "–"]);
    return D.table(["Env step", "Mean return", "Standard deviation"], rows.slice(-200), [0, 1, 2]);
  }

  function factCards(name, facts) {
    const parts = [];
    if (facts.crashes.length) {
      parts.push(D.card("Crash files", D.table(["File", "What happened", "Size", "Written"], facts.crashes.map((each) => [D.h("code", null, "crash/" + each.name), each.text, D.unbroken(D.bytes(each.bytes)), D.unbroken(D.when(each.changed))]), [2]),
        facts.crashes.some((each) => each.replayable) ? D.h("p", { class: "soft" }, "Replay a failure of an environment: ", D.h("code", null, facts.commands.reproduce)) : null));
    }
    if (facts.videos.length) {
      parts.push(D.card("Episodes", D.h("div", { class: "videos" }, facts.videos.map((video) => {
        const at = video.steps === null ? video.name : "step " + D.count(video.steps);
        return D.h("figure", null, D.h("img", { src: D.source.media(name, video), loading: "lazy", alt: `The agent plays one episode at ${at}` }), D.h("figcaption", { class: "soft" }, at));
      }))));
    }
    const changed = facts.settings.filter((each) => each.changed).length;
    const settings = facts.problem ? D.h("p", { class: "notice" }, "config.yaml cannot be read: " + facts.problem) : D.h("dl", { class: "settings" }, facts.settings.map((each) =>
      D.h("div", { class: each.changed ? "changed" : null }, D.h("dt", null, D.breakable(each.key)), D.h("dd", { class: "mono" }, each.value))));
    const card = D.card("Settings", settings);
    if (!facts.problem) card.querySelector("header").append(D.h("span", { class: "soft" }, `${facts.settings.length}; the ${changed} in bold differ from the defaults`));
    parts.push(card);
    const sessions = facts.sessions.map((session, place) => D.h("div", null, facts.sessions.length > 1 ? D.h("h3", null, `Session ${place + 1}`) : null, D.pairs(Object.entries(session).map(([key, value]) => [key, key === "command" ? D.h("code", null, value) : IS_TIME.test(value) ? D.when(value) : value]))));
    const versions = D.table(["Package", "Version"], facts.versions.map((each) => [each.name, each.before ? `${each.version} (was ${each.before})` : each.version]));
    parts.push(D.h("div", { class: "two" }, sessions.length ? D.card("Where and how it ran", sessions) : null, facts.versions.length ? D.card("Versions", D.h("details", facts.versions.length > 12 ? null : { open: true }, D.h("summary", null, facts.versions.length + " packages"), versions)) : null));
    return parts;
  }

  function checkpointTable(found) {
    if (!found.length) return D.h("p", { class: "soft" }, "No checkpoints.");
    const rows = found.map((each) => [
      D.unbroken(D.h("code", null, each.name)), D.count(each.steps), each.kind + (each.exact === false && each.kind !== "best agent" ? ", off schedule" : ""), D.unbroken(D.bytes(each.bytes)),
      each.replay_bytes ? D.unbroken(D.bytes(each.replay_bytes)) : "–", D.unbroken(D.when(each.created)), each.problem ? D.h("span", { class: "bad" }, "✗ " + each.problem) : D.h("span", { class: "good unbroken" }, "✓ verifies"),
    ]);
    return D.table(["Checkpoint", "Env step", "Kind", "Size", "Replay", "Written", "Files"], rows, [1, 3, 4]);
  }

  D.pages.run = function (main, name) {
    const series = {};
    const figures = new Map();
    const sections = new Map();
    let cursor = "";
    let findings = [];
    let isStarted = false;
    let saved = null;

    const head = D.h("div", { class: "page-head" }, D.h("h1", null, name));
    const tiles = D.h("section", { class: "card", "aria-label": "Progress" });
    const notice = D.h("p", { class: "notice hidden" });
    const chart = D.chart(() => D.returnSpec(series, findings), 360);
    const list = D.h("ul", { class: "findings", "aria-label": "Findings" });
    const numbers = D.h("details", { class: "soft", ontoggle: () => showNumbers() }, D.h("summary", null, "Evaluations as a table"), D.h("div"));
    const returns = D.card("Return", chart.node, list, numbers);
    returns.querySelector("header").append(D.h("span", { class: "soft" }, "evaluation: mean of its episodes, band of one standard deviation · training: mean of the last 100 episodes"));
    const shares = D.chart(() => sharesSpec(series), 200);
    const sharesCard = D.card("Time shares", shares.node);
    sharesCard.classList.add("hidden");
    const metrics = D.h("div", { class: "metrics" });
    const checkpoints = D.card("Checkpoints", D.h("p", { class: "soft" }, "Checking the files …"));
    const facts = D.h("div", { class: "facts" });
    facts.style.display = "contents";
    main.append(head, notice, tiles, returns, metrics, sharesCard, checkpoints, facts);

    function showNumbers() {
      if (numbers.open) D.replace(numbers.lastChild, evaluationTable(series));
    }

    function addFigure(metric, titles) {
      const key = series[metric].section;
      if (!sections.has(key)) {
        const grid = D.h("div", { class: "small-charts" });
        sections.set(key, { grid, card: D.card(titles[key] || key, grid) });
        const order = Object.keys(titles);
        const cards = [...sections.entries()].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b)).map(([, each]) => each.card);
        metrics.replaceChildren(...cards);
      }
      const figure = smallFigure(metric, series);
      figures.set(metric, figure);
      sections.get(key).grid.append(figure.node);
      const many = Math.min(4, sections.get(key).grid.children.length);
      sections.get(key).card.style.flex = `${many} 1 ${many * 250}px`;
    }

    let titles = {};
    let commands = {};
    let shownFacts = "";
    function showFacts(found) {
      const text = JSON.stringify(found);
      if (text === shownFacts) return;
      shownFacts = text;
      commands = found.commands;
      D.replace(facts, factCards(name, found));
    }

    function showRow(row) {
      D.replace(head, D.h("h1", null, name), D.status(row.status), D.h("span", { class: "soft" }, D.about(row)), D.h("span", { class: "right" }, D.link(D.routeOfCompare([name]), { class: "button" }, "Compare")));
      D.replace(tiles, D.tiles(row));
      const reasons = { failed: "This run failed; its last words are in the terminal and in crash files.", interrupted: `This run was interrupted. Continue it: ${commands.resume}` };
      const reason = reasons[row.status] || (row.stop_reason ? `This run stopped by itself: ${row.stop_reason}.` : "");
      notice.className = "notice " + (row.status === "failed" ? "" : "mild ") + (reason ? "" : "hidden");
      D.setText(notice, reason);
    }

    async function start() {
      const answer = await D.source.run(name);
      titles = answer.sections;
      showFacts(answer.facts);
      showRow(answer.row);
      isStarted = true;
    }

    async function showCheckpoints(row) {
      const now = `${row.status} ${Math.floor((row.steps || 0) / Math.max(1, (row.total || 0) / 50))}`;
      if (saved === now) return;
      saved = now;
      const answer = await D.source.checkpoints(name);
      showFacts((await D.source.run(name)).facts); // a video or a crash file may be new, too
      const note = D.h("p", { class: "soft" }, "Files are checked against their SHA-256 sums, replay data by size. ", D.h("code", null, "rl-training inspect"), " checks everything.");
      D.replace(checkpoints, D.h("header", null, D.h("h2", null, "Checkpoints")), checkpointTable(answer.checkpoints), answer.checkpoints.length ? note : null);
    }

    return {
      title: name,
      stop() {
        chart.stop();
        shares.stop();
        figures.forEach((figure) => figure.chart.stop());
      },
      async tick() {
        if (!isStarted) await start();
        const answer = await D.source.metrics(name, cursor);
        cursor = answer.cursor;
        const isNew = answer.restart || Object.keys(answer.series).length > 0;
        if (answer.restart) {
          figures.forEach((figure) => figure.chart.stop());
          figures.clear();
          sections.clear();
          metrics.replaceChildren();
        }
        D.merge(series, answer, 8000);
        if (JSON.stringify(findings) !== JSON.stringify(answer.findings)) {
          findings = answer.findings;
          D.replace(list, findingsList(findings));
          chart.refresh();
        }
        if (isNew) {
          showRow(answer.row);
          for (const metric of Object.keys(answer.series)) {
            if (["return", "shares"].includes(series[metric].section)) continue;
            if (!figures.has(metric)) addFigure(metric, titles);
            figures.get(metric).show();
            figures.get(metric).chart.refresh();
          }
          sharesCard.classList.toggle("hidden", !SHARES.some((each) => Object.hasOwn(series, each)));
          chart.refresh();
          shares.refresh();
          showNumbers();
        } else showRow(answer.row);
        showCheckpoints(answer.row).catch(() => { saved = null; });
        return answer.complete ? 1000 : 20;
      },
    };
  };
})(window.dashboard);
