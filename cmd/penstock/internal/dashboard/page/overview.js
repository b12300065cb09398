// What the stream tells: charts, loops, resources, data paths.

import {Chart} from './charts.js';
import {attr, el, keyed, table, text} from './dom.js';
import {bytes, count, each, moment, percent, rate, rounds, span} from './format.js';
import {quantile, since} from './histogram.js';
import {flows, outcome, startWhy, unplanned} from './workers.js';

const charts = [];
const quantiles = [0.5, 0.9, 0.99];
const window_ = 15000; // ms that a point of a latency looks back
let before = null;
let recent = []; // samples of the window
let pathTable;

export function start() {
  const holder = document.getElementById('charts');
  const line = (name, colour, fill) => ({name, colour, fill});
  charts.push(
    new Chart(holder, 'Throughput', [line('up', 'up', true), line('down', 'down', true)], rate, 1024, rounds),
    new Chart(holder, 'Open flows', [line('open', 'up', true)], (n) => count(Math.round(n)), 10),
    new Chart(holder, 'New flows', [line('new', 'up'), line('refused', 'bad')], each, 10),
    new Chart(holder, 'Datagrams', [line('up', 'up'), line('down', 'down')], each, 10),
    ...['Time to connect', 'Time to the first byte'].map((name) => new Chart(holder, name, [line('p50', 'down'), line('p90', 'up'), line('p99', 'bad')], span, 0.001)),
  );
  pathTable = table('Data paths of ended flows', [
    {head: 'Path', fill: (td, p) => text(td, p.path)},
    {head: 'Why not faster', cls: 'fill', fill: (td, p) => text(td, p.why || '–')},
    {head: 'Directions', cls: 'num', fill: (td, p) => text(td, count(p.directions))},
    {head: 'Share', cls: 'num', make: (td) => td.append(el('span'), bar()), fill: (td, p) => {
      text(td.children[0], percent(p.share));
      grow(td.children[1], p.share);
    }},
  ]);
  pathTable.node.classList.add('plain');
  pathTable.node.hidden = true;
  document.getElementById('paths').append(pathTable.node);
}

// redraw follows a change of the look.
export const redraw = () => charts.forEach((c) => c.draw());

// gap is the time in which nobody answered: the lines break there.
export function gap() {
  if (!before) return;
  const t = Date.parse(before.time) / 1000 + 1e-3;
  charts.forEach((c) => c.push(t, c.lines.map(() => null)));
  before = null;
  recent = [];
}

// latency adds percentiles of the flows of the last seconds; a time without any is a gap.
function latency(s, t) {
  if (recent.length && s.uptime < recent[recent.length - 1].uptime) recent = [];
  recent.push(s);
  while (Date.parse(s.time) - Date.parse(recent[0].time) > window_) recent.shift();
  if (recent.length < 2) return;
  ['connect', 'first_byte'].forEach((name, i) => {
    const h = since(s.latency[name], recent[0].latency[name]);
    charts[4 + i].push(t, quantiles.map((q) => quantile(h, q)));
  });
}

export function sample(s) {
  const passed = before ? (Date.parse(s.time) - Date.parse(before.time)) / 1000 : 0;
  // A counter that has gone back belongs to another process, or to a listener that is gone.
  const per = (of) => (passed > 0 && of(s) >= of(before) ? (of(s) - of(before)) / passed : null);
  const t = Date.parse(s.time) / 1000;
  const total = (name) => (x) => x.totals[name];
  if (passed > 0) {
    charts[0].push(t, [per(total('bytes_up')), per(total('bytes_down'))]);
    charts[2].push(t, [per(total('begun')), per(total('refused'))]);
    charts[3].push(t, [per(total('datagrams_up')), per(total('datagrams_down'))]);
  }
  charts[1].push(t, [s.totals.flows]);
  latency(s, t);
  figures(s.totals);
  loops(s, per);
  resources(s, per);
  keeper(s);
  const directions = s.paths.reduce((sum, p) => sum + p.directions, 0);
  document.getElementById('no-paths').hidden = s.paths.length > 0;
  pathTable.node.hidden = s.paths.length === 0;
  pathTable.update(s.paths.map((p) => ({...p, share: directions ? p.directions / directions : 0})).sort((a, b) => b.directions - a.directions), (p) => p.path + '\n' + p.why);
  before = s;
}

// figures are totals since the start.
function figures(n) {
  const show = (id, value, title) => {
    const node = document.getElementById('total-' + id);
    text(node, value);
    attr(node, 'title', title);
  };
  show('flows', count(n.flows));
  show('begun', count(n.begun));
  show('refused', count(n.refused));
  show('failed', count(n.failed));
  show('up', bytes(n.bytes_up), count(n.bytes_up) + ' bytes');
  show('down', bytes(n.bytes_down), count(n.bytes_down) + ' bytes');
}

function bar() {
  return el('span.bar', {'aria-hidden': 'true'}, el('i'));
}

function grow(node, share) {
  node.firstChild.style.width = Math.min(share, 1) * 100 + '%';
  node.classList.toggle('hot', share > 0.9);
}

// rows are lines of name, value, note and a bar for a share.
function rows(holder, list) {
  keyed(holder, list, (r) => r.name,
    () => el('li', {}, el('span.name'), el('span.note'), bar(), el('span.value')),
    (li, r) => {
      text(li.children[0], r.name);
      text(li.children[1], r.note || '');
      li.children[2].classList.toggle('none', r.share == null);
      grow(li.children[2], r.share || 0);
      text(li.children[3], r.value);
      li.classList.toggle('warn', Boolean(r.warn));
    });
}

function loops(s, per) {
  rows(document.getElementById('loops'), s.loops.map((l, i) => {
    const busy = per((x) => (x.loops[i] ? x.loops[i].busy : 0));
    return {
      name: 'Loop ' + i, share: busy ?? 0, value: busy == null ? '–' : percent(Math.min(busy, 1)),
      note: count(l.flows) + (l.flows === 1 ? ' flow' : ' flows') + ', longest ' + span(l.longest_turn),
    };
  }));
}

function resources(s, per) {
  const r = s.resources;
  const held = (name, n, most, note) => ({name, value: count(n) + (most ? ' of ' + count(most) : ''), share: most ? n / most : null, note, warn: most && n > 0.9 * most});
  const lost = (name, key, note) => {
    const now = per((x) => x.resources[key]);
    return {name, value: count(r[key]), note: now ? each(now) + ' now' : note, warn: now > 0};
  };
  const cpu = per((x) => x.resources.cpu);
  rows(document.getElementById('resources'), [
    ...(r.fds ? [held('Descriptors', r.fds, r.max_fds)] : []),
    held('Pipes', r.pipes_open, r.pipes_max, count(r.pipes_leased) + ' leased'),
    lost('Pipes refused', 'pipes_refused'),
    lost('Lost by the kernel', 'datagrams_lost', 'datagrams'),
    lost('GSO fallbacks', 'gso_fallbacks', 'runs'),
    {name: 'Held datagrams', value: bytes(r.datagram_held_bytes)},
    lost('Log lines dropped', 'log_lines_dropped', 'lines'),
    {name: 'Processor', value: r.cpu && cpu != null ? percent(cpu) : '–', note: 'of one CPU'},
    {name: 'Heap', value: bytes(r.heap_bytes), note: count(r.goroutines) + ' goroutines'},
  ]);
}

// keeper tells about the process that holds the flows, and about the workers that it has started.
function keeper(s) {
  const k = s.keeper;
  document.getElementById('keeper').hidden = !k;
  if (!k) return;
  const starts = k.starts.filter((r) => r.count > 0);
  const w = k.last;
  keyed(document.getElementById('keeper-list'), k.up ? [
    {name: 'Keeper', value: `holds ${flows(k.flows)}`, note: `process ${k.pid}`},
    {name: 'Worker', value: `has run for ${span(Math.max(0, Math.round((Date.parse(s.time) - Date.parse(k.worker_since)) / 1000)))}`, note: `process ${k.worker_pid}` + (k.healthy ? '' : ', on trial after an upgrade: if it ends, the old binary comes back')},
    {name: 'Started again', value: starts.length ? starts.map((r) => times(r)).join(', ') : 'never', note: `since ${moment(k.since)}`},
    ...(w ? [{name: 'Last start', value: `${moment(w.time)}, ${startWhy(w)}`, note: outcome(w), warn: unplanned(w)}] : []),
  ] : [{name: 'Keeper', value: 'gone', note: 'flows would end with the worker', warn: true}],
  (r) => r.name,
  () => el('li', {}, el('span.name'), el('span.value'), el('span.note')),
  (li, r) => {
    [r.name, r.value, r.note].forEach((t, i) => text(li.children[i], t));
    li.classList.toggle('warn', Boolean(r.warn));
  });
}

const times = (r) => `${count(r.count)} ${r.reason === 'crash' && r.count !== 1 ? 'crashe' : r.reason}${r.count === 1 ? '' : 's'}`;
