// What happened to the daemon, the youngest first, and who asked for it.

import {get} from './api.js';
import {el, keyed, text} from './dom.js';
import {count, moment} from './format.js';

const kept = 512;
const page = 20;
let events = [];
let limit = page;

const choices = {
  all: () => true,
  people: (e) => Boolean(e.by),
  problems: (e) => e.level !== 'info',
};

const choice = () => document.getElementById('event-choice');

export function start() {
  document.getElementById('more-events').addEventListener('click', () => {
    limit = kept;
    show();
  });
  choice().addEventListener('change', () => {
    limit = page;
    show();
  });
}

// load asks for what came after the youngest that is known. A daemon that has begun anew counts from 1 again.
export async function load(last) {
  if (events.length && last < events[0].id) events = [];
  const answer = await get('/v1/events?after=' + (events.length ? events[0].id : 0));
  const youngest = events.length ? events[0].id : 0; // two loads may have asked at once
  events = [...answer.events.filter((e) => e.id > youngest).reverse(), ...events].slice(0, kept);
  show();
}

function show() {
  const chosen = events.filter(choices[choice().value]);
  keyed(document.getElementById('event-list'), chosen.slice(0, limit), (e) => e.id,
    (e) => el('li', {'data-level': e.level}, el('time', {datetime: e.time}, moment(e.time)), el('span.kind', {}, e.level === 'info' ? e.kind : `${e.kind}, ${e.level}`), el('span.subject', {}, e.subject),
      el('span.message', {}, e.message, e.by ? el('span.by', {}, ' by ' + e.by) : null)),
    () => {});
  const none = document.getElementById('no-events');
  none.hidden = chosen.length > 0;
  text(none, events.length ? 'No event of this kind.' : 'Nothing has happened yet.');
  const more = document.getElementById('more-events');
  more.hidden = chosen.length <= limit;
  text(more, `Show all ${count(chosen.length)}`);
}
