// The live map: listeners, routes, groups and members as one picture. The width of a line
// is its throughput; its colour, its mark and its word are the health of where it leads. On a narrow
// screen the columns are below each other, and a bar is the throughput.

import {attr, el, keyed, text} from './dom.js';
import {filterLink, flowsURL} from './flows.js';
import {count, rate} from './format.js';
import {broken, follow, groupHealth, groupsOf, keys, memberHealth, now} from './topology.js';

// What a column shows at most; the rest is one node that leads to the list. Broken ones come first.
const most = {listeners: 12, routes: 16, groups: 12, members: 24};
const perGroup = 6;

const marks = {good: '●', odd: '▲', bad: '✕', idle: '○'};
const svg = 'http://www.w3.org/2000/svg';

let columns; // listeners, routes, groups, members: ol elements
let lines; // the svg element
let edges = []; // {from, to, rate, is}

export function start() {
  const holder = document.getElementById('map-picture');
  lines = document.createElementNS(svg, 'svg');
  lines.setAttribute('aria-hidden', 'true');
  holder.append(lines);
  columns = ['Listeners', 'Routes', 'Groups', 'Members'].map((name) => {
    const id = 'map-' + name.toLowerCase();
    const list = el('ol.nodes', {'aria-labelledby': id});
    holder.append(el('div.column', {}, el('h3', {id}, name), list));
    return list;
  });
  follow(show);
  new ResizeObserver(draw).observe(holder);
}

// pick keeps the first n of a list: broken ones, then the fastest, in the order that the list has.
function pick(list, n) {
  if (list.length <= n) return list;
  const weight = {bad: 2, odd: 1};
  const kept = new Set([...list].sort((a, b) => (weight[b.is] || 0) - (weight[a.is] || 0) || (b.rate || 0) - (a.rate || 0)).slice(0, n - 1));
  return list.filter((x) => kept.has(x));
}

function more(list, kept, href, key) {
  if (kept.length === list.length) return [];
  const left = list.filter((x) => !kept.includes(x));
  const bad = left.filter((x) => x.is === 'bad').length;
  return [{key, rest: true, is: bad ? 'bad' : 'idle', name: `${count(left.length)} more`, word: bad ? `${count(bad)} of them down` : '', rate: left.reduce((sum, x) => sum + (x.rate || 0), 0), flows: left.reduce((sum, x) => sum + x.flows, 0), href}];
}

function show({listeners, groups, rates}) {
  if (!listeners || !groups) return;
  const of = (key) => rates.get(key) ?? NaN; // not known yet
  const byName = new Map(groups.map((g) => [g.name, g]));
  const health = new Map(groups.map((g) => [g.name, groupHealth(g)]));
  const allRoutes = [];
  const allListeners = listeners.map((l) => {
    const routes = l.routes.map((r) => {
      const to = groupsOf(r).map(({group, part}) => ({group, rate: of(part ? keys.part(l, r, part) : keys.route(l, r)), is: (health.get(group) || ['good'])[0]}));
      const is = ['bad', 'odd'].find((is) => to.some((t) => t.is === is)) || 'good';
      return {key: keys.route(l, r), kind: 'Route', name: r.name, word: conditions(l, r), is, rate: of(keys.route(l, r)), flows: r.flows, from: keys.listener(l), to,
        filter: {listener: l.name, route: r.name}};
    });
    allRoutes.push(...routes);
    return {key: keys.listener(l), kind: 'Listener', name: l.name, word: l.state === 'open' ? l.address : l.state, is: {open: 'good', resting: 'bad'}[l.state] || 'odd', rate: of(keys.listener(l)), flows: l.flows, filter: {listener: l.name}};
  });
  const allGroups = groups.map((g) => ({key: keys.group(g), kind: 'Group', name: g.name, is: health.get(g.name)[0], word: health.get(g.name)[1], rate: of(keys.group(g)), flows: g.flows, filter: {group: g.name}, anchor: '#group:' + encodeURIComponent(g.name)}));
  const listenerNodes = pick(allListeners, most.listeners);
  const routeNodes = pick(allRoutes, most.routes);
  const groupNodes = pick(allGroups, most.groups);
  const memberNodes = [];
  const share = Math.max(2, Math.min(perGroup, Math.floor(most.members / Math.max(groupNodes.length, 1))));
  for (const node of groupNodes) {
    const g = byName.get(node.name);
    const members = g.members.map((m) => ({key: keys.member(g, m), kind: 'Member', name: m.name, word: m.state + (broken(m) && m.why ? ': ' + m.why : ''), is: memberHealth(m), rate: of(keys.member(g, m)), flows: m.flows, from: node.key,
      filter: {group: g.name, member: m.name}}));
    const kept = pick(members, share);
    const rest = more(members, kept, node.anchor, node.key + ' rest');
    for (const r of rest) r.from = node.key;
    memberNodes.push(...kept, ...rest);
  }
  edges = [
    ...routeNodes.map((r) => ({from: r.from, to: r.key, rate: r.rate, is: r.is})),
    ...routeNodes.flatMap((r) => r.to.map((t) => ({from: r.key, to: keys.group({name: t.group}), rate: t.rate, is: t.is}))),
    ...memberNodes.map((m) => ({from: m.from, to: m.key, rate: m.rate, is: m.is === 'idle' ? 'good' : m.is})),
  ];
  const top = Math.max(1, ...[...listenerNodes, ...groupNodes, ...memberNodes].map((n) => n.rate || 0));
  const lists = [
    [...listenerNodes, ...more(allListeners, listenerNodes, '#listeners', 'l rest')],
    [...routeNodes, ...more(allRoutes, routeNodes, '#listeners', 'r rest')],
    [...groupNodes, ...more(allGroups, groupNodes, '#groups', 'g rest')],
    memberNodes,
  ];
  lists.forEach((list, i) => keyed(columns[i], list, (n) => n.key, node, (li, n) => fill(li, n, top)));
  document.getElementById('map-picture').hidden = listeners.length + groups.length === 0;
  const none = document.getElementById('no-map');
  none.hidden = listeners.length + groups.length > 0;
  text(none, 'No listener is configured.');
  draw();
}

function conditions(l, r) {
  const all = [...(r.sni || []), ...(r.alpn || []), ...(r.from || [])];
  return all.length > 2 ? all.slice(0, 2).join(', ') + ', …' : all.join(', ') || (l.routes.length > 1 ? 'all others' : 'all clients') + ' of ' + l.name;
}

function node(n) {
  const link = el('a.node', {}, el('span.mark', {'aria-hidden': 'true'}), el('span.name'), ' ', el('span.word'), ' ', el('span.figures'), el('span.flow', {'aria-hidden': 'true'}, el('i')));
  if (!n.rest) filterLink(link, () => link.parentNode.item.filter);
  return el('li', {}, link);
}

function fill(li, n, top) {
  const link = li.firstChild;
  const [mark, name, word, figures, bar] = link.children;
  const figure = `${count(n.flows)} ${n.flows === 1 ? 'flow' : 'flows'}` + (isNaN(n.rate) ? '' : ', ' + rate(n.rate));
  attr(link, 'data-is', n.is);
  attr(link, 'href', n.rest ? n.href : flowsURL(n.filter));
  attr(link, 'aria-label', [n.name, n.word, figure].filter(Boolean).join(' ') + (n.rest ? ': show the list' : `, ${n.kind.toLowerCase()}: show its flows`));
  attr(link, 'title', `${n.name}${n.word ? '\n' + n.word : ''}\n${figure}`);
  text(mark, marks[n.is]);
  text(name, n.name);
  text(word, n.word);
  text(figures, figure);
  bar.firstChild.style.width = 100 * Math.sqrt((n.rate || 0) / top) + '%';
}

// draw puts the lines where the nodes are. Lines that leave or reach one node lie beside each other.
function draw() {
  const holder = document.getElementById('map-picture');
  if (!lines || getComputedStyle(lines).display === 'none') return;
  const box = holder.getBoundingClientRect();
  if (!box.width) return;
  const place = new Map();
  columns.forEach((c) => {
    for (const li of c.children) {
      const r = li.getBoundingClientRect();
      place.set(li.key, {left: r.left - box.left, right: r.right - box.left, middle: (r.top + r.bottom) / 2 - box.top, height: r.height});
    }
  });
  const there = edges.filter((e) => place.has(e.from) && place.has(e.to));
  const top = Math.max(1, ...there.map((e) => e.rate || 0));
  for (const e of there) e.width = e.rate ? 2 + 16 * Math.sqrt(e.rate / top) : 1.5;
  const spread = (end) => {
    const groups = Map.groupBy(there, (e) => e[end]);
    const other = end === 'from' ? 'to' : 'from';
    for (const [key, list] of groups) {
      const p = place.get(key);
      const sum = list.reduce((s, e) => s + e.width, 0);
      const gap = Math.min(3, Math.max(0, (p.height - 8 - sum) / Math.max(1, list.length - 1)));
      const scale = Math.min(1, (p.height - 8) / (sum + gap * (list.length - 1)));
      list.sort((a, b) => place.get(a[other]).middle - place.get(b[other]).middle);
      let y = p.middle - scale * (sum + gap * (list.length - 1)) / 2;
      for (const e of list) {
        e[end + 'Y'] = y + scale * e.width / 2;
        y += scale * (e.width + gap);
      }
    }
  };
  spread('from');
  spread('to');
  lines.setAttribute('width', box.width);
  lines.setAttribute('height', box.height);
  keyed(lines, there, (e) => e.from + e.to, () => document.createElementNS(svg, 'path'), (path, e) => {
    const x0 = place.get(e.from).right;
    const x1 = place.get(e.to).left;
    const bend = (x1 - x0) / 2;
    attr(path, 'd', `M${x0} ${e.fromY.toFixed(1)}C${x0 + bend} ${e.fromY.toFixed(1)} ${x1 - bend} ${e.toY.toFixed(1)} ${x1} ${e.toY.toFixed(1)}`);
    attr(path, 'stroke-width', e.width.toFixed(1));
    attr(path, 'data-is', e.rate || e.is !== 'good' ? e.is : 'idle');
  });
}
