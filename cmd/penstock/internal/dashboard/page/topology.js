// Listeners with their routes and groups with their members, asked for now and then, and
// how fast each moves bytes: the difference of two answers.

import {get} from './api.js';
import {poll} from './poll.js';

const readers = [];

// now is the last answer: lists, and their rates in bytes per second by key.
export const now = {listeners: null, groups: null, rates: new Map()};

// follow calls show with now whenever a part of it is new.
export function follow(show) {
  readers.push(show);
}

export const keys = {
  listener: (l) => JSON.stringify(['l', l.name]),
  route: (l, r) => JSON.stringify(['r', l.name, r.name]),
  part: (l, r, p) => JSON.stringify(['r', l.name, r.name, p.name, p.refuse === true]),
  group: (g) => JSON.stringify(['g', g.name]),
  member: (g, m) => JSON.stringify(['m', g.name, m.name, m.address]),
};

let reloadGroups;
let reloadListeners;

// start begins; problem(part, err) shows what went wrong.
export function start(problem) {
  reloadListeners = poll(part('listeners', (l, see) => {
    see(keys.listener(l), l);
    for (const r of l.routes) {
      see(keys.route(l, r), r);
      for (const p of r.parts || []) see(keys.part(l, r, p), p);
    }
  }), (err) => problem('listeners', err));
  reloadGroups = poll(part('groups', (g, see) => {
    see(keys.group(g), g);
    for (const m of g.members) see(keys.member(g, m), m);
  }), (err) => problem('groups', err));
}

// reload asks again at once.
export function reload() {
  reloadListeners();
  reloadGroups();
}

function part(name, visit) {
  let before = new Map();
  let at = 0;
  return async () => {
    const list = (await get('/v1/' + name))[name];
    const t = performance.now();
    const seen = new Map();
    const rates = new Map();
    const passed = (t - at) / 1000;
    for (const item of list) {
      visit(item, (key, x) => {
        const total = x.bytes_up + x.bytes_down;
        seen.set(key, total);
        if (before.has(key) && passed > 0.5) rates.set(key, Math.max(0, total - before.get(key)) / passed);
        else if (now.rates.has(key)) rates.set(key, now.rates.get(key));
      });
    }
    if (passed > 0.5) {
      before = seen;
      at = t;
    }
    const other = name === 'groups' ? ['"l"', '"r"'] : ['"g"', '"m"'];
    for (const [key, rate] of now.rates) if (other.some((o) => key.startsWith('[' + o))) rates.set(key, rate);
    now.rates = rates;
    now[name] = list;
    for (const show of readers) show(now, name);
  };
}

// groupsOf are the groups to which a route leads, each with its part if there are several.
export const groupsOf = (r) => (r.parts ? r.parts.filter((p) => !p.refuse).map((p) => ({group: p.name, part: p})) : [{group: r.group}]);

// share is the part of a route's clients that a weight asks for, among all weights.
export const share = (weight, all) => weight / (all.reduce((sum, w) => sum + w, 0) || 1);

// shares are those of weights by name, in words.
export function shares(weights) {
  const all = Object.values(weights);
  return Object.entries(weights).map(([name, w]) => `${name} ${percentOf(share(w, all))}`).join(', ');
}

// percentOf is a share in words, as exact as weights are.
export const percentOf = (share) => `${Math.round(1e6 * share) / 1e4} %`;

export const weightsOf = (r) => Object.fromEntries(r.parts.map((p) => [p.name, p.weight]));

// destination is where a route leads, in words: a group, or the shares of its parts.
export function destination(r) {
  return r.parts ? shares(weightsOf(r)) : r.group;
}

// A member has a problem if it should take flows and does not. One that an operator has
// drained or disabled is as it was asked to be.
export const broken = (m) => m.state === 'down' || m.state === 'ejected';

// health is good, odd or bad, and a word.
export function memberHealth(m) {
  if (broken(m)) return 'bad';
  return m.available ? 'good' : 'odd';
}

export function groupHealth(g) {
  if (g.destination) return ['good', g.destination];
  const available = g.members.filter((m) => m.available).length;
  const down = g.members.filter(broken).length;
  if (!available || g.panic) return ['bad', available ? 'panic: too few are well' : g.members.length ? 'no member is available' : 'no members'];
  if (down) return ['odd', `${available} of ${g.members.length} available`];
  return ['good', `${available} of ${g.members.length} available`];
}
