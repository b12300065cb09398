// What happened to the daemon, the youngest first.

import {get} from './api.js';
import {el, keyed, text} from './dom.js';
import {count, moment} from './format.js';

const kept = 512;
const page = 20;
let events = [];
let limit = page;

export function start() {
  document.getElementById('more-events').addEventListener('click', () => {
    limit = kept;
    show();
  });
}

// load asks for what came after the youngest that is known. A daemon that has begun anew counts from 1 again.
export async function load(last) {
  if (events.length && last < events[0].id) events = [];
  const answer = await get('/v1/events?after=' + (events.length ? events[0].id : 0));
  events = [...answer.events.reverse(), ...events].slice(0, kept);
  show();
}

function show() {
  keyed(document.getElementById('event-list'), events.slice(0, limit), (e) => e.id,
    (e) => el('li', {'data-level': e.level}, el('time', {datetime: e.time}, moment(e.time)), el('span.kind', {}, e.kind), el('span.subject', {}, e.subject), el('span.message', {}, e.message)),
    () => {});
  document.getElementById('no-events').hidden = events.length > 0;
  const more = document.getElementById('more-events');
  more.hidden = events.length <= limit;
  text(more, `Show all ${count(events.length)}`);
}
