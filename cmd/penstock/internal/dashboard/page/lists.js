// Lists of networks.

import {get} from './api.js';
import {el, say, table, two} from './dom.js';
import {bytes, count, span} from './format.js';
import {poll} from './poll.js';

let list;
let show;

export function start(tell) {
  show = tell;
  list = table('Lists', [
    {head: 'List', cls: 'fill', fill: (td, l) => two(td, l.name, l.source)},
    {head: 'State', cls: 'why', make: (td) => td.append(el('span.state'), el('div.quiet')), fill: (td, l) => {
      const [word, more] = stateOf(l);
      two(td, word, more);
      td.firstChild.dataset.is = level(l);
    }},
    {head: 'Networks', cls: 'num', fill: (td, l) => two(td, count(l.networks), bytes(l.bytes))},
    {head: 'Hits', cls: 'num', fill: (td, l) => two(td, count(l.hits))},
    {head: 'Loaded', cls: 'num', fill: (td, l) => two(td, l.loaded ? age(l.loaded) + ' ago' : 'never', l.saved && 'from the disk', l.loaded)},
  ]);
  document.getElementById('list-list').append(list.node);
  poll(load, (err) => say(document.getElementById('lists-problem'), err));
}

async function load() {
  const lists = (await get('/v1/lists')).lists;
  document.getElementById('lists').hidden = lists.length === 0;
  document.querySelector('nav a[href="#lists"]').hidden = lists.length === 0;
  list.update(lists, (l) => l.name);
  show(lists);
}

const age = (t) => span(Math.max(0, Math.round((Date.now() - Date.parse(t)) / 1000)));

const level = (l) => (l.error ? (l.loaded ? 'odd' : 'bad') : l.bad_lines || !l.loaded ? 'odd' : 'good');

function stateOf(l) {
  if (l.error) return ['cannot be loaded', l.error + (l.since ? `; for ${age(l.since)}` : '')];
  if (!l.loaded) return ['not loaded yet', ''];
  if (l.bad_lines) return [`${count(l.bad_lines)} bad ${l.bad_lines === 1 ? 'line' : 'lines'}`, (l.first_bad || []).join('; ')];
  return ['good', ''];
}

// broken are problems.
export const broken = (lists) => lists.filter((l) => l.error).map((l) => ({
  key: 'list ' + l.name, level: level(l), href: '#lists', what: `The list ${l.name} cannot be loaded`,
  more: (l.loaded ? `What was loaded ${age(l.loaded)} ago is used. ` : 'It is empty: deny refuses nobody by it, allow admits nobody. ') + l.error}));
