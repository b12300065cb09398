// Routes that split their clients among groups: the shares that the weights ask for, and those of the flows that have come.

import {changeWeights} from './dialogs.js';
import {attr, el, keyed, table, text, two} from './dom.js';
import {filterLink, flowsURL} from './flows.js';
import {bytes, count, exact} from './format.js';
import {follow, groupHealth, percentOf, reload, share} from './topology.js';

const colours = 6; // of parts, in style.css; the part refuse has its own
const window_ = 300000; // ms that new flows are looked back, at most
const step = 10000; // ms between two looks that are kept

let groups = new Map(); // by name

export function start() {
  follow((now) => {
    if (!now.listeners) return;
    groups = new Map((now.groups || []).map((g) => [g.name, g]));
    const routes = now.listeners.flatMap((l) => l.routes.filter((r) => r.parts).map((r) => ({...r, listener: l.name})));
    keyed(document.getElementById('split-list'), routes, (r) => JSON.stringify([r.listener, r.name]), panel, fill);
  });
}

// panel is one route.
function panel(r) {
  const node = el('article.panel.split');
  node.looks = [];
  const number = (head, of) => ({head, cls: 'num', fill: (td, p) => text(td, of(p))});
  const size = (head, of) => ({head, cls: 'num', fill: (td, p) => {
    text(td, p.refuse ? '–' : bytes(of(p)));
    attr(td, 'title', exact(of(p)));
  }});
  node.table = table('Parts', [
    {head: 'Part', cls: 'fill', make: (td) => td.append(el('div', {}, el('i.part-mark', {'aria-hidden': 'true'}), el('span')), el('div.quiet')), fill: (td, p) => {
      td.firstChild.firstChild.dataset.part = p.colour;
      text(td.firstChild.lastChild, p.name);
      text(td.lastChild, health(p));
    }},
    number('Share', (p) => percentOf(p.share)),
    {head: 'Weight', cls: 'num', fill: (td, p) => two(td, count(p.weight), p.weight === p.file_weight ? '' : 'file ' + count(p.file_weight))},
    {head: 'New flows', cls: 'num', fill: (td, p) => two(td, p.lately.of ? percentOf(Math.round(1000 * p.lately.n / p.lately.of) / 1000) : '–', p.lately.of ? `${count(p.lately.n)} of ${count(p.lately.of)}` : '',
      'of those in the last five minutes that this page has seen')},
    {head: 'Flows', cls: 'num', make: (td, tr) => {
      const link = el('a');
      filterLink(link, () => conditions(node.item, tr.item));
      td.append(link);
    }, fill: (td, p) => {
      text(td.firstChild, count(p.flows));
      attr(td.firstChild, 'href', flowsURL(conditions(node.item, p)));
      attr(td.firstChild, 'aria-label', `${count(p.flows)} flows of ${p.name}: show them`);
    }},
    number('Begun', (p) => count(p.begun)), number('Refused', (p) => count(p.refused)), number('Failed', (p) => count(p.failed)),
    size('Up', (p) => p.bytes_up), size('Down', (p) => p.bytes_down),
  ]);
  const title = `${r.listener} / ${r.name}`;
  node.append(
    el('header', {}, el('h3', {}, title), el('span.badge', {'data-is': 'odd'}), el('span.grow'),
      el('button.full', {type: 'button', 'aria-label': 'Change weights of ' + title, onclick: () => changeWeights(node.item, groups, reload)}, 'Change weights…')),
    el('div.shares', {'aria-hidden': 'true'}),
    el('div.scroll', {role: 'region', tabindex: 0, 'aria-label': 'Parts of ' + title}, node.table.node));
  return node;
}

const conditions = (r, p) => ({listener: r.listener, route: r.name, ...(p.refuse ? {} : {group: p.name})});

function health(p) {
  if (p.refuse) return 'refuses its clients';
  const g = groups.get(p.name);
  return g ? groupHealth(g)[1] : '';
}

function fill(node, r) {
  const [head, bar] = node.children;
  const changed = r.parts.some((p) => p.weight !== p.file_weight);
  const badge = head.children[1];
  badge.hidden = !changed && !r.fleet_weights;
  text(badge, r.fleet_weights ? 'weights of the fleet' : 'weights differ from the file');
  const weights = r.parts.map((p) => p.weight);
  const lately = look(node, r);
  const parts = r.parts.map((p, i) => ({...p, share: share(p.weight, weights), colour: p.refuse ? 'refuse' : i % colours, lately: {n: lately[i], of: lately.reduce((sum, n) => sum + n, 0)}}));
  keyed(bar, parts, (p) => p.name, () => el('i'), (i, p) => {
    i.dataset.part = p.colour;
    i.style.flexGrow = p.share;
    i.hidden = !p.weight;
    attr(i, 'title', `${p.name} ${percentOf(p.share)}`);
  });
  node.table.update(parts, (p) => p.name);
}

// look returns how many flows each part has got lately. Another process counts anew.
function look(node, r) {
  const t = performance.now();
  const now = r.parts.map((p) => p.begun);
  if (node.looks.some((l) => l.begun.length !== now.length || l.begun.some((n, i) => n > now[i]))) node.looks = [];
  const looks = node.looks;
  if (!looks.length || t - looks[looks.length - 1].t >= step) looks.push({t, begun: now});
  while (looks.length > 1 && t - looks[1].t > window_) looks.shift();
  return now.map((n, i) => n - looks[0].begun[i]);
}
