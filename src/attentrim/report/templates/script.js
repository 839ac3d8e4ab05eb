"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const make = (name, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...children);
    return element;
  };
  const draw = (name, attributes = {}, ...children) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const starts = [];
  let heads = 0;
  for (const site of data.sites) { starts.push(heads); heads += site.heads; }
  const kept = (site) => Array.from({ length: site.heads }, (_, head) => head).filter((head) => !site.uniform && !site.removed.includes(head));
  const first = Math.max(0, data.sites.findIndex((site) => kept(site).length > 0));
  const state = { moment: Math.max(0, data.steps.length - 1), site: first, head: data.sites.length ? kept(data.sites[first])[0] ?? 0 : 0, sentence: 0, word: -1, view: "lines" };
  const last = () => state.moment >= data.steps.length - 1;

  // Head map

  const span = Math.max(1e-9, ...data.values.flatMap((row) => row || []).map((value) => Math.abs(value ?? 0)));
  const highest = Math.max(1e-9, ...data.rates.flat().map((rate) => rate ?? 0));
  const cells = [];
  const valueOf = (site, head, moment) => (data.values[moment] || [])[starts[site] + head] ?? null;
  const isUniform = (site) => data.sites[site].uniformBefore || (last() && data.sites[site].uniform);

  function outcome(site, head) {
    const known = data.sites[site];
    if (known.before.includes(head)) return "gone";
    if (data.open.length) {
      const sign = data.open[state.moment][starts[site] + head];
      if (sign === "-") return "gone";
      if (last() && data.finished) return known.removed.includes(head) ? "closed" : "open";
      return sign === "1" ? "open" : "closed";
    }
    return last() && known.removed.includes(head) ? "closed" : "open";
  }

  function colour(site, head, how) {
    if (how === "gone") return "";
    const rate = data.rates.length ? data.rates[state.moment][site] : null;
    if (rate !== null && rate !== undefined) return `color-mix(in srgb, var(--orange) ${Math.round((75 * rate) / highest)}%, var(--cell))`;
    const value = valueOf(site, head, state.moment);
    if (value === null) return how === "open" ? "color-mix(in srgb, var(--blue) 55%, var(--cell))" : "var(--cell)";
    const share = Math.round(75 * Math.min(1, Math.abs(value) / span) ** 0.7);
    return `color-mix(in srgb, var(--${value > 0 ? "blue" : "orange"}) ${share}%, var(--cell))`;
  }

  function describe(site, head) {
    const how = outcome(site, head);
    const end = last() && data.finished;
    const words = { open: end ? "kept" : "open at this step", closed: end ? "removed" : "closed at this step", gone: "removed before this run" };
    const value = valueOf(site, head, state.moment);
    const rate = data.rates.length ? data.rates[state.moment][site] : null;
    let text = `Site ${site}, head ${head}: ${isUniform(site) ? "uniform" : words[how]}`;
    if (value !== null) text += `, ${data.valueName} ${value.toFixed(3)}`;
    if (rate !== null && rate !== undefined) text += `, its site's attention is dropped ${Number((100 * rate).toPrecision(2))}% of the time`;
    return text;
  }

  function buildMap() {
    const table = byId("map");
    if (!table) return;
    const most = Math.max(...data.sites.map((site) => site.heads));
    const top = make("tr", {}, make("th", { textContent: "site", scope: "col" }));
    for (let head = 0; head < most; head++) top.append(make("th", { textContent: head, scope: "col" }));
    table.append(make("thead", {}, top));
    const body = make("tbody");
    data.sites.forEach((site, index) => {
      const row = make("tr", { title: site.path }, make("th", { textContent: index, scope: "row" }));
      cells.push([]);
      for (let head = 0; head < site.heads; head++) {
        const button = make("button", { type: "button" });
        button.addEventListener("click", () => select(index, head));
        button.addEventListener("keydown", (event) => step(event, index, head));
        button.setAttribute("role", "gridcell");
        cells[index].push(button);
        row.append(make("td", { role: "presentation" }, button));
      }
      body.append(row);
    });
    table.append(body);
    const slider = byId("step");
    if (data.steps.length > 1) {
      byId("timeline").hidden = false;
      slider.max = data.steps.length - 1;
      slider.value = state.moment;
      slider.addEventListener("input", () => { stop(); state.moment = Number(slider.value); drawMap(); drawStory(); });
      byId("play").addEventListener("click", play);
    }
    const sites = byId("site");
    data.sites.forEach((site, index) => { if (site.heads) sites.append(make("option", { value: index, textContent: site.path === `site ${index}` ? index : `${index} (${site.path})` })); });
    const chosen = (site, head) => { select(site, head); byId("said").textContent = byId("story").textContent; };
    sites.addEventListener("change", () => chosen(Number(sites.value), state.head));
    byId("head").addEventListener("change", () => chosen(state.site, Number(byId("head").value)));
    drawLegend();
  }

  function step(event, site, head) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -head], End: [0, 1e6] };
    if (!(event.key in moves)) return;
    event.preventDefault();
    const [down, right] = moves[event.key];
    let next = site + down;
    while (data.sites[next] && !data.sites[next].heads) next += down;
    if (!data.sites[next]) return;
    const there = Math.min(Math.max(0, head + right), data.sites[next].heads - 1);
    select(next, there);
    cells[next][there].focus();
  }

  let timer = null;
  function stop() {
    clearInterval(timer);
    timer = null;
    byId("play").textContent = "Play";
  }
  function play() {
    if (timer) return stop();
    const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const stride = reducedMotion ? Math.ceil(data.steps.length / 12) : 1;
    let next = last() ? 0 : state.moment;
    byId("play").textContent = "Pause";
    timer = setInterval(() => {
      state.moment = Math.min(next, data.steps.length - 1);
      next += stride;
      byId("step").value = state.moment;
      drawMap();
      drawStory();
      if (last()) { stop(); byId("said").textContent = byId("moment").textContent; }
    }, reducedMotion ? 500 : Math.max(40, 6000 / data.steps.length));
  }

  function drawMap() {
    if (!cells.length) return;
    let open = 0;
    cells.forEach((row, site) => row.forEach((button, head) => {
      const how = outcome(site, head);
      open += how === "open" && !isUniform(site);
      button.className = how === "gone" ? "absent" : how;
      button.style.backgroundColor = colour(site, head, how);
      button.textContent = how === "open" ? "" : "✕";
      button.setAttribute("aria-label", describe(site, head));
      const chosen = site === state.site && head === state.head;
      button.setAttribute("aria-selected", chosen);
      button.tabIndex = chosen ? 0 : -1;
    }));
    cells.forEach((row, site) => { if (row.length) row[0].closest("tr").classList.toggle("uniform", isUniform(site)); });
    const output = byId("moment");
    const when = data.steps.length ? `Step ${data.steps[state.moment]}: ` : "";
    const uniform = data.sites.filter((_, site) => isUniform(site)).length;
    output.textContent = `${when}${open} of ${heads} heads ${data.open.length && !last() ? "are open" : "attend"}${uniform ? `, ${uniform} ${uniform > 1 ? "sites are" : "site is"} uniform` : ""}`;
    if (data.recorded > data.steps.length && data.steps.length) output.textContent += ` (${data.steps.length} of ${data.recorded} recorded steps)`;
    byId("step").setAttribute("aria-valuetext", output.textContent);
  }

  function drawLegend() {
    const entry = (background, sign, text) => {
      const box = make("i", { textContent: sign });
      box.style.background = background;
      box.setAttribute("aria-hidden", "true");
      return make("span", {}, box, text);
    };
    const legend = byId("legend");
    const scale = (low, high, name) => make("span", {}, `${low}`, make("i", { className: "scale" }), `${high} ${name}`);
    if (data.rates.length) legend.append(entry("color-mix(in srgb, var(--orange) 75%, var(--cell))", "", `attention dropped most (${Number((100 * highest).toPrecision(2))}%)`), entry("var(--cell)", "", "never"));
    else if (data.values.some(Boolean)) legend.append(scale((-span).toFixed(2), span.toFixed(2), data.valueName), make("span", {}, "the lower, the sooner the head goes"));
    else legend.append(entry("color-mix(in srgb, var(--blue) 55%, var(--cell))", "", "kept"));
    if (data.open.some((signs) => signs.includes("0")) || data.sites.some((site) => site.removed.length > site.before.length)) legend.append(entry("var(--cell)", "✕", "closed; at the end: removed"));
    if (data.sites.some((site) => site.before.length)) {
      const box = entry("none", "✕", "removed before this run");
      box.firstChild.style.border = "1px dashed var(--line)";
      legend.append(box);
    }
    if (data.sites.some((site) => site.uniform)) legend.append(entry("var(--cell)", "━", "uniform site"));
  }

  function select(site, head) {
    state.site = site;
    state.head = Math.min(head, Math.max(0, data.sites[site].heads - 1));
    const sites = byId("site"), list = byId("head");
    sites.value = site;
    list.replaceChildren(...Array.from({ length: data.sites[site].heads }, (_, index) => make("option", { value: index, textContent: index })));
    list.value = state.head;
    drawMap();
    drawStory();
    drawAttention();
    drawOverview();
  }

  function drawStory() {
    const { site, head } = state;
    const known = data.sites[site];
    if (!known) return;
    const lines = [make("p", {}, make("strong", { textContent: describe(site, head) })), ...(known.path === `site ${site}` ? [] : [make("p", { textContent: known.path })])];
    const happened = data.events[`${site},${head}`] || [];
    if (happened.length) {
      const words = happened.slice(0, 12).map(([when, opened]) => `${opened ? "opened again" : "closed"} at step ${when}`);
      lines.push(make("p", { textContent: words.join(", ") + (happened.length > 12 ? `, and ${happened.length - 12} more times` : "") + "." }));
    } else if (data.open.length && !known.before.includes(head)) lines.push(make("p", { textContent: "Its gate never closed." }));
    byId("story").replaceChildren(...lines);
    drawSpark(site, head);
  }

  function drawSpark(site, head) {
    const place = byId("spark");
    const values = data.steps.map((_, moment) => data.rates.length ? data.rates[moment][site] : valueOf(site, head, moment));
    if (values.length < 2 || values.every((value) => value === null || value === undefined)) return place.replaceChildren();
    const width = 320, height = 110, left = 40, bottom = 18;
    const known = values.filter((value) => value !== null && value !== undefined);
    const low = Math.min(0, ...known), high = Math.max(0, ...known, low + 1e-6);
    const [start, end] = [data.steps[0], data.steps[data.steps.length - 1]];
    const along = (when) => left + ((when - start) / Math.max(1, end - start)) * (width - left - 6);
    const x = (moment) => along(data.steps[moment]);
    const y = (value) => 6 + (1 - (value - low) / (high - low)) * (height - bottom - 12);
    const name = data.rates.length ? "drop probability" : data.valueName;
    const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name} over steps, from ${known[0].toFixed(3)} to ${known[known.length - 1].toFixed(3)}` });
    let shut = null;
    for (const [when, opened] of [...(data.events[`${site},${head}`] || []), [end, true]]) {
      if (!opened) shut ??= when;
      else if (shut !== null) {
        picture.append(draw("rect", { class: "shut", x: along(shut), y: 4, width: Math.max(1.5, along(when) - along(shut)), height: height - bottom - 8 }));
        shut = null;
      }
    }
    picture.append(draw("line", { class: "axis", x1: left, x2: width - 6, y1: y(0), y2: y(0) }));
    const points = values.map((value, moment) => value === null || value === undefined ? null : `${x(moment).toFixed(1)},${y(value).toFixed(1)}`).filter(Boolean);
    picture.append(draw("polyline", { class: "curve", points: points.join(" ") }));
    picture.append(draw("line", { class: "now", x1: x(state.moment), x2: x(state.moment), y1: 4, y2: height - bottom }));
    const label = (text, at, across, anchor) => { const word = draw("text", { x: across, y: at, "text-anchor": anchor }); word.textContent = text; picture.append(word); };
    label(high.toFixed(2), 14, left - 4, "end");
    label(low.toFixed(2), height - bottom - 2, left - 4, "end");
    label(`step ${data.steps[0]}`, height - 4, left, "start");
    label(`step ${data.steps[data.steps.length - 1]}`, height - 4, width - 6, "end");
    place.replaceChildren(make("p", { className: "hint", textContent: `${name} over training${data.open.length ? "; shaded where the gate was closed" : ""}` }), picture);
  }

  // Attention

  const moments = [["before", "Before training"], ["after", "After training"]];
  let weights = null;

  function mapAt(moment, site, sentence = state.sentence) {
    return data.attention.maps.find((entry) => entry.moment === moment && entry.site === site && entry.sentence === sentence);
  }

  function weightsAt(moment, site, head) {
    const entry = mapAt(moment, site);
    const position = entry ? entry.heads.indexOf(head) : -1;
    if (position < 0) return null;
    const size = entry.rows * entry.columns;
    return { rows: entry.rows, columns: entry.columns, at: (query, key) => weights[entry.offset + position * size + query * entry.columns + key] / 255 };
  }

  const removedNow = (site, head) => data.sites[site] && (data.sites[site].removed.includes(head) || data.sites[site].uniform);

  async function loadAttention() {
    if (!data.attention.sentences.length) return;
    const packed = Uint8Array.from(atob(data.attention.data), (sign) => sign.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    weights = new Uint8Array(await new Response(stream).arrayBuffer());
    const list = byId("sentence");
    data.attention.sentences.forEach((sentence, index) => list.append(make("option", { value: index, textContent: `${index + 1}: ${sentence.text.slice(0, 120)}` })));
    list.addEventListener("change", () => { state.sentence = Number(list.value); state.word = -1; fillWords(); drawAttention(); drawOverview(); });
    byId("word").addEventListener("change", () => { state.word = Number(byId("word").value); drawAttention(); });
    for (const radio of document.querySelectorAll('input[name="view"]')) radio.addEventListener("change", () => { state.view = radio.value; drawAttention(); });
    fillWords();
    const [site, head] = mostChanged();
    select(site, head);
  }

  function mostChanged() {
    let best = [state.site, state.head], most = -1;
    data.sites.forEach((known, site) => {
      for (const head of kept(known)) {
        const [before, after] = moments.map(([moment]) => weightsAt(moment, site, head));
        if (!before || !after || before.rows !== after.rows) continue;
        let dot = 0, a = 0, b = 0;
        for (let query = 0; query < before.rows; query++) for (let key = 0; key < before.columns; key++) {
          const [u, v] = [before.at(query, key), after.at(query, key)];
          dot += u * v; a += u * u; b += v * v;
        }
        const change = 1 - dot / Math.sqrt(a * b || 1);
        if (change > most) [best, most] = [[site, head], change];
      }
    });
    return best;
  }

  function fillWords() {
    const sentence = data.attention.sentences[state.sentence];
    byId("text").textContent = sentence.text;
    if (sentence.length > sentence.tokens.length) byId("text").append(make("span", { className: "hint", textContent: ` (the first ${sentence.tokens.length} of ${sentence.length} tokens are shown)` }));
    const words = byId("word");
    words.replaceChildren(make("option", { value: -1, textContent: "all words" }), ...sentence.tokens.map((token, index) => make("option", { value: index, textContent: `${index + 1}: ${token}` })));
    words.value = state.word;
  }

  function drawAttention() {
    if (!weights) return;
    const { site, head } = state;
    const tokens = data.attention.sentences[state.sentence].tokens;
    byId("chosen").textContent = `Site ${site}, head ${head}${removedNow(site, head) ? ", which was removed" : ""}`;
    byId("detail").replaceChildren(...moments.map(([moment, title]) => {
      const found = weightsAt(moment, site, head);
      const gone = moment === "after" && removedNow(site, head);
      const heading = make("h4", { textContent: title });
      if (!found) return make("div", {}, heading, make("p", { className: "hint", textContent: "This head has no attention here." }));
      if (gone) heading.append(make("span", { className: "hint", textContent: data.sites[site].uniform ? " (not used: the site is uniform)" : " (not used: the head was removed)" }));
      return make("div", {}, heading, (state.view === "lines" ? lines : matrix)(found, tokens, title));
    }));
    drawTable(tokens);
  }

  function lines(found, tokens, title) {
    const height = 22, width = 360, left = 120, right = 240;
    const picture = draw("svg", { viewBox: `0 0 ${width} ${height * tokens.length + 6}`, role: "img", "aria-label": `${title}: lines from each word to the words it attends to; the table below gives each word's strongest link` });
    for (let query = 0; query < found.rows; query++) {
      if (state.word >= 0 && state.word !== query) continue;
      for (let key = 0; key < found.columns; key++) {
        const weight = found.at(query, key);
        if (weight < 0.03) continue;
        const line = draw("line", { class: "line", x1: left, y1: height * query + 12, x2: right, y2: height * key + 12, "stroke-opacity": weight.toFixed(3), "stroke-width": (0.6 + 2.4 * weight).toFixed(2) });
        picture.append(line);
      }
    }
    tokens.forEach((token, index) => {
      for (const [across, anchor] of [[left - 6, "end"], [right + 6, "start"]]) {
        const word = draw("text", { x: across, y: height * index + 16, "text-anchor": anchor });
        word.textContent = cut(token);
        picture.append(word);
      }
    });
    return picture;
  }

  function matrix(found, tokens, title) {
    const cell = Math.max(9, Math.min(22, 300 / tokens.length)), margin = 92;
    const size = margin + cell * tokens.length + 4;
    const picture = draw("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": `${title}: rows are words that look, columns words that are looked at; the table below gives each word's strongest link` });
    picture.append(draw("rect", { class: "frame", x: margin, y: margin, width: cell * found.columns, height: cell * found.rows }));
    for (let query = 0; query < found.rows; query++) for (let key = 0; key < found.columns; key++) {
      if (state.word >= 0 && state.word !== query) continue;
      const weight = found.at(query, key);
      const square = draw("rect", { class: "square", x: margin + cell * key, y: margin + cell * query, width: cell - 0.5, height: cell - 0.5, "fill-opacity": weight.toFixed(3) });
      square.addEventListener("pointerenter", () => { byId("weight").textContent = `${tokens[query]} → ${tokens[key]}: ${weight.toFixed(2)}`; });
      picture.append(square);
    }
    tokens.forEach((token, index) => {
      const row = draw("text", { x: margin - 4, y: margin + cell * index + cell / 2 + 4, "text-anchor": "end" });
      const column = draw("text", { transform: `translate(${margin + cell * index + cell / 2 + 4} ${margin - 4}) rotate(-90)` });
      for (const word of [row, column]) { word.textContent = cut(token); word.style.fontSize = `${Math.min(13, cell)}px`; picture.append(word); }
    });
    return picture;
  }

  const cut = (token) => Array.from(token).length > 14 ? `${Array.from(token).slice(0, 13).join("")}…` : token;

  function drawTable(tokens) {
    const strongest = (found, query) => {
      if (!found) return "";
      let best = 0;
      for (let key = 1; key < found.columns; key++) if (found.at(query, key) > found.at(query, best)) best = key;
      return [tokens[best], found.at(query, best)];
    };
    const sides = moments.map(([moment]) => weightsAt(moment, state.site, state.head));
    const head = make("tr", {}, make("th", { textContent: "word", scope: "col" }), ...moments.map(([moment]) => make("th", { textContent: `looks most at, ${moment}`, scope: "col" })));
    const rows = tokens.map((token, query) => {
      const row = make("tr", {}, make("th", { scope: "row" }, make("bdi", { textContent: token })));
      for (const found of sides) {
        const best = strongest(found, query);
        row.append(best ? make("td", {}, make("bdi", { textContent: best[0] }), ` (${best[1].toFixed(2)})`) : make("td", { textContent: "" }));
      }
      return row;
    });
    byId("words").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  }

  // All heads at a glance

  function drawOverview() {
    if (!weights) return;
    byId("overview").replaceChildren(...moments.map(([moment, title]) => make("div", {}, make("h4", { textContent: title }), glance(moment, title))));
  }

  function glance(moment, title) {
    const most = Math.max(1, ...data.sites.map((site) => site.heads));
    const box = Math.max(14, Math.min(44, Math.floor(560 / most))), gap = 3, scale = Math.min(2, window.devicePixelRatio || 1);
    const canvas = make("canvas", { width: most * (box + gap) * scale, height: data.sites.length * (box + gap) * scale });
    canvas.style.width = `${most * (box + gap)}px`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${title}: the attention of every head, a small square each; choose heads in the head map above`);
    canvas.dataset.moment = moment;
    const brush = canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    const [blue, cell, ink] = ["--blue", "--cell", "--ink"].map((name) => style.getPropertyValue(name).trim());
    brush.scale(scale, scale);
    data.sites.forEach((known, site) => {
      for (let head = 0; head < known.heads; head++) {
        const x = head * (box + gap) + 1, y = site * (box + gap) + 1;
        const found = weightsAt(moment, site, head);
        brush.globalAlpha = 1;
        brush.fillStyle = cell;
        brush.fillRect(x, y, box, box);
        if (found) {
          brush.fillStyle = blue;
          const wide = box / found.columns, high = box / found.rows;
          for (let query = 0; query < found.rows; query++) for (let key = 0; key < found.columns; key++) {
            const weight = found.at(query, key);
            if (weight < 0.02) continue;
            brush.globalAlpha = weight;
            brush.fillRect(x + key * wide, y + query * high, wide, high);
          }
        }
        brush.globalAlpha = 1;
        brush.strokeStyle = ink;
        if (moment === "after" && removedNow(site, head)) {
          brush.lineWidth = 1.5;
          brush.beginPath();
          brush.moveTo(x, y); brush.lineTo(x + box, y + box); brush.moveTo(x + box, y); brush.lineTo(x, y + box);
          brush.stroke();
        }
        if (site === state.site && head === state.head) {
          brush.lineWidth = 2;
          brush.strokeRect(x - 0.5, y - 0.5, box + 1, box + 1);
        }
      }
    });
    canvas.addEventListener("click", (event) => {
      const frame = canvas.getBoundingClientRect(), shrink = (most * (box + gap)) / frame.width;
      const head = Math.floor(((event.clientX - frame.left) * shrink) / (box + gap)), site = Math.floor(((event.clientY - frame.top) * shrink) / (box + gap));
      if (data.sites[site] && head < data.sites[site].heads) select(site, head);
    });
    return canvas;
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawOverview);

  // The page

  buildMap();
  if (data.sites.length) select(state.site, state.head);
  loadAttention().then(() => { document.documentElement.dataset.ready = "yes"; });
})();
