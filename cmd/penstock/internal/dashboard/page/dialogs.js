// Questions, and what came of them. A question names the effect, and is as serious as it: what
// ends flows is red, what ends many or refuses clients has to be typed.

import {ask, get} from './api.js';
import {el, say, text} from './dom.js';
import {count} from './format.js';
import {percentOf, share, shares, weightsOf} from './topology.js';

const many = 100; // flows: who ends so many types how many

const live = () => document.getElementById('said');
let quiet = 0;

// tell shows a sentence for a while, and reads it out.
export function tell(sentence) {
  clearTimeout(quiet);
  text(live(), sentence);
  live().classList.add('shown');
  quiet = setTimeout(() => live().classList.remove('shown'), 6000);
}

// dialog opens a modal dialog with a body, and closes it for good at Escape or by its button.
export function dialog(title, cls, ...body) {
  const head = el('h2', {id: 'dialog-' + cls}, title);
  const close = el('button.icon', {type: 'button', 'aria-label': 'Close', onclick: () => node.close()}, '×');
  const node = el('dialog.' + cls, {'aria-labelledby': head.id}, el('header', {}, head, close), ...body);
  node.addEventListener('close', () => node.remove());
  document.body.append(node);
  node.showModal();
  return node;
}

// confirm asks before something is changed: act is called when the answer is yes, and what it
// throws is shown, with the question still there. weigh(form) returns how serious the answer
// is as it stands: {yes: the button's text, danger, type: what has to be typed, effect: a sentence}.
export function confirm(title, body, weigh, act) {
  const error = el('p.problem', {role: 'alert', hidden: true});
  const effect = el('p.effect', {role: 'status'});
  const what = el('b');
  const typed = el('input', {type: 'text', autocomplete: 'off', spellcheck: false, 'aria-describedby': 'effect'});
  effect.id = 'effect';
  const ask_ = el('label.block.typed', {}, 'Type ', what, ' to go on ', typed);
  const go = el('button', {type: 'submit'});
  const no = el('button', {type: 'button', onclick: () => node.close()}, 'Cancel');
  const form = el('form', {autocomplete: 'off'}, ...body, effect, ask_, error, el('footer', {}, no, go));
  let want = '';
  const weighed = () => {
    const w = weigh(new FormData(form));
    text(go, w.yes);
    go.className = w.danger ? 'danger' : 'primary';
    effect.hidden = !w.effect;
    text(effect, w.effect || '');
    effect.dataset.is = w.danger ? 'bad' : '';
    want = w.type || '';
    text(what, want);
    ask_.hidden = !want;
    go.disabled = Boolean(w.off) || want !== '' && typed.value.trim() !== want;
    return w;
  };
  form.addEventListener('input', weighed);
  const first = weighed();
  if (first.type) typed.autofocus = true;
  else if (first.danger) no.autofocus = true;
  const node = dialog(title, 'confirm', form);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    if (go.disabled) return;
    go.disabled = true;
    try {
      await act(new FormData(form));
      node.close();
    } catch (err) {
      if (err.status === undefined) throw err;
      say(error, err);
      weighed();
    }
  });
  return node;
}

export const flowsText = (n) => (n === 1 ? '1 flow' : count(n) + ' flows');

// killFlow asks, and ends one flow.
export function killFlow(flow, done) {
  confirm('End flow ' + flow.id + '?', [
    el('p', {}, flow.client + ' → ' + (flow.upstream || flow.listener)),
    el('p.quiet', {}, 'Both connections are closed at once; bytes in transit are dropped.'),
  ], () => ({yes: 'End this flow', danger: true, effect: 'Ends 1 flow.'}), async () => {
    await ask('DELETE', '/v1/flows/' + flow.id);
    tell('Flow ' + flow.id + ' was ended.');
    done();
  });
}

// endFlows asks, and ends all flows that a filter chooses; described says which they are.
export async function endFlows(filter, described, done) {
  let n;
  try {
    const q = new URLSearchParams(filter);
    q.set('limit', 1);
    n = (await get('/v1/flows?' + q)).matched;
  } catch (err) {
    if (err.status === undefined) throw err;
    return tell(err.line());
  }
  confirm(`End ${flowsText(n)}?`, [
    el('p', {}, 'Every open flow with: ', el('b', {}, described)),
    el('p.quiet', {}, 'Their connections are closed at once; bytes in transit are dropped. Flows that begin to match until then end too. Clients may connect again.'),
  ], () => ({yes: `End ${flowsText(n)}`, danger: true, effect: `Ends ${flowsText(n)}.`, type: n >= many ? String(n) : ''}), async () => {
    const {killed} = await ask('DELETE', '/v1/flows?' + filter);
    tell(`${flowsText(killed)} ${killed === 1 ? 'was' : 'were'} ended.`);
    done();
  });
}

// changeMember asks what shall become of a member. An address may be in a group
// by several names, and a name have several addresses: the narrower one is used.
export function changeMember(group, member, done) {
  const same = (key) => group.members.filter((m) => m.name === key || m.address === key);
  const key = same(member.address).length <= same(member.name).length ? member.address : member.name;
  const all = same(key);
  const flows = all.reduce((sum, m) => sum + m.flows, 0);
  const others = group.members.filter((m) => m.available && !all.includes(m)).length;
  const goOn = flows ? `; ${flowsText(flows)} ${flows === 1 ? 'goes' : 'go'} on` : '';
  const changes = [
    ['', 'Leave the state as it is', ''],
    ['enable', 'Enable', 'takes new flows, whatever the file says; health still decides'],
    ['drain', 'Drain', 'takes no new flows' + goOn],
    ['disable', 'Disable', 'takes no new flows' + (flows ? `; ends ${flowsText(flows)}` : '')],
    ['remove', 'Remove', 'leaves the group' + (flows ? `; ${flowsText(flows)} go on, drain or end as “removed” of the route says` : '')],
    ['file', 'As the file says', 'forgets what was set here'],
  ];
  const weight = el('input', {type: 'number', name: 'weight', id: 'weight', min: 0, max: 256, step: 1, value: member.weight, required: true});
  const also = all.length > 1 ? el('p.quiet', {}, `${all.length} members of this group have that name or address; all change.`) : null;
  confirm('Change ' + member.name, [
    el('p.quiet', {}, `${member.address} in ${group.name}: ${member.state}, ${flowsText(member.flows)} open. A change lasts until the process ends, or the file says something else.`), also,
    el('fieldset', {}, el('legend', {}, 'New flows'), ...changes.map(([value, name, what]) => el('label.choice', {},
      el('input', {type: 'radio', name: 'state', value, checked: value === '', autofocus: value === ''}), el('span', {}, name, what && el('span.quiet', {}, ' – ' + what))))),
    el('label.block', {}, 'Address ', el('input', {type: 'text', name: 'address', value: member.address, spellcheck: false, required: true})),
    el('p', {}, el('label', {for: 'weight'}, 'Weight '), weight, el('span.quiet', {}, ' 1 to 256; 0: the file’s')),
  ].filter(Boolean), (form) => {
    const state = form.get('state');
    const weighs = Number(form.get('weight')) !== member.weight;
    const moves = form.get('address').trim() !== member.address;
    const ends = state === 'disable' ? flows : 0;
    const last = ['disable', 'drain', 'remove'].includes(state) && others === 0 && member.available;
    const effect = [
      ends ? `Ends ${flowsText(ends)}.` : '',
      state === 'remove' ? `Removes ${member.name} from ${group.name}` + (flows ? `; the route decides what happens to its ${flowsText(flows)}.` : '.') : '',
      moves && state !== 'remove' ? `New flows are connected to ${form.get('address').trim()}.` : '',
      last ? `No other member of ${group.name} is available: its new flows will be refused.` : '',
    ].filter(Boolean).join(' ');
    const verb = {enable: 'Enable', drain: 'Drain', disable: 'Disable', file: 'Set as the file says:', remove: 'Remove'}[state];
    return {
      yes: verb ? `${verb} ${member.name}` + (ends ? `, end ${flowsText(ends)}` : '') : moves ? 'Change the address' : weighs ? `Set the weight to ${form.get('weight')}` : 'Change the member',
      danger: ends > 0 || last || state === 'remove' && flows > 0, effect, type: last ? group.name : ends >= many ? String(ends) : '', off: !state && !weighs && !moves,
    };
  }, async (form) => {
    const path = `/v1/groups/${encodeURIComponent(group.name)}/members/${encodeURIComponent(key)}`;
    if (form.get('state') === 'remove') {
      await ask('DELETE', path);
      tell(`${member.name} was removed from ${group.name}.`);
      return done();
    }
    const change = {};
    if (form.get('address').trim() !== member.address) change.address = form.get('address').trim();
    if (form.get('state')) change.state = form.get('state');
    if (Number(form.get('weight')) !== member.weight) change.weight = Number(form.get('weight'));
    const now = await ask('PATCH', path, change);
    tell(now.new_worker ? `Another worker takes over, which has ${member.name} at its new address.` : `${member.name} is ${now.members[0].state}, weight ${now.members[0].weight}.`);
    done();
  });
}

// addMember asks for a member that the file does not have.
export function addMember(group, done) {
  const field = (name, label, attrs) => el('label.block', {}, label, ' ', el('input', {name, spellcheck: false, autocomplete: 'off', ...attrs}));
  confirm('Add a member to ' + group.name, [
    el('p.quiet', {}, 'It stays until the process ends, or the file has a member of that name. The configuration below shows what to put into the file.'),
    field('address', 'Address', {type: 'text', required: true, placeholder: 'tcp://10.0.0.1:80', autofocus: true}),
    field('name', 'Name', {type: 'text', placeholder: 'the address'}),
    field('weight', 'Weight', {type: 'number', min: 1, max: 256, value: 1, required: true}),
    field('max_flows', 'Flows at most; 0: no limit', {type: 'number', min: 0, value: 0, required: true}),
    el('label.check-box', {}, el('input', {type: 'checkbox', name: 'backup'}), 'Backup: takes flows only if no other member can'),
  ], (form) => ({yes: 'Add the member', off: !form.get('address').trim(), effect: form.get('address').trim() ? `${group.name} sends new flows there, too.` : ''}), async (form) => {
    const m = {address: form.get('address').trim(), weight: Number(form.get('weight'))};
    if (form.get('name').trim()) m.name = form.get('name').trim();
    if (Number(form.get('max_flows'))) m.max_flows = Number(form.get('max_flows'));
    if (form.has('backup')) m.backup = true;
    const added = await ask('POST', `/v1/groups/${encodeURIComponent(group.name)}/members`, m);
    tell(added.new_worker ? `Another worker takes over, which adds ${m.name || m.address} to ${group.name}.` : `${m.name || m.address} was added to ${group.name}.`);
    done();
  });
}

// changeWeights asks how a route shall split its new flows; groups are those that there are, by name.
export function changeWeights(route, groups, done) {
  const where = `${route.listener} / ${route.name}`;
  const differs = route.parts.some((p) => p.weight !== p.file_weight);
  const inputs = route.parts.map((p) => el('input', {type: 'number', name: p.name, min: 0, max: 1000000, step: 1, value: p.weight, required: true}));
  const words = route.parts.map(() => el('span.quiet'));
  const now = (form) => Object.fromEntries(route.parts.map((p) => [p.name, Number(form.get(p.name))]));
  // refused are the parts that get more clients than before, and refuse them.
  const refused = (weights) => {
    const before = weightsOf(route);
    const of = (all, p) => share(all[p.name], Object.values(all));
    return route.parts.filter((p) => of(weights, p) > of(before, p) && (p.refuse || (groups.get(p.name) && !groups.get(p.name).destination && !groups.get(p.name).members.some((m) => m.available))));
  };
  const reset = el('button', {type: 'button', hidden: !differs, onclick: () => {
    route.parts.forEach((p, i) => { inputs[i].value = p.file_weight; });
    inputs[0].dispatchEvent(new Event('input', {bubbles: true}));
  }}, 'As the file says');
  confirm('Weights of ' + where, [
    el('p.quiet', {}, 'For new flows, at once: open ones stay where they are. In a fleet, the other relays with these parts follow within a second. It lasts over reloads, upgrades and crashes, until the file changes these weights.'),
    el('div.weights', {}, ...route.parts.flatMap((p, i) => [el('label', {}, el('span', {}, p.name), inputs[i]), words[i]])), reset,
  ], (form) => {
    const weights = now(form);
    const all = Object.values(weights);
    const empty = all.every((w) => !w);
    route.parts.forEach((p, i) => text(words[i], (empty ? '' : percentOf(share(weights[p.name], all))) + (p.weight === weights[p.name] ? '' : `, was ${count(p.weight)}`)));
    const lost = empty ? [] : refused(weights);
    return {
      yes: 'Set the weights', off: empty || route.parts.every((p) => p.weight === weights[p.name]), danger: lost.length > 0, type: lost.length ? lost[0].name : '',
      effect: empty ? 'One part needs a weight of at least 1.' : lost.map((p) => (p.refuse ? `Refuses ${percentOf(share(weights[p.name], all))} of all new clients.` : `No member of ${p.name} is available: its new flows will be refused.`)).join(' '),
    };
  }, async (form) => {
    const weights = now(form); // all, so that the shares are those of the question, whoever has changed some meanwhile
    const file = differs && route.parts.every((p) => p.file_weight === weights[p.name]);
    const is = await setWeights(route.listener, route.name, file ? {state: 'file'} : {weights});
    tell(`${where}: ${shares(weightsOf(is))}` + (is.error ? `. ${is.error}` : is.fleet_weights ? ', in the whole fleet.' : '.'));
    done();
  });
}

const setWeights = (listener, route, change) => ask('PATCH', `/v1/listeners/${encodeURIComponent(listener)}/routes/${encodeURIComponent(route)}`, change);

// undoWeights asks, and has the weights of a route as the file says.
export function undoWeights(d, done) {
  confirm(`Have the weights of ${d.listener} / ${d.route} as the file says?`, [
    el('p', {}, d.parts.map((p) => `${p.name}: ${count(p.file)} instead of ${count(p.running)}`).join(', ') + (d.fleet ? ', in the whole fleet' : '') + '.'),
  ], () => ({yes: 'As the file says'}), async () => {
    const is = await setWeights(d.listener, d.route, {state: 'file'});
    tell(is.error || `${d.listener} / ${d.route} is as the file says.`);
    done();
  });
}

// undoMember asks, and has a member as the file says.
export function undoMember(d, done) {
  const path = `/v1/groups/${encodeURIComponent(d.group)}/members/${encodeURIComponent(d.member)}`;
  const added = d.what === 'added';
  confirm(added ? `Remove ${d.member}?` : `Have ${d.member} as the file says?`, [
    el('p', {}, `${d.group} / ${d.member} was ${d.what} at run time.`),
  ], () => ({yes: added ? 'Remove the member' : 'As the file says', danger: added, effect: added ? `Removes ${d.member} from ${d.group}; the route decides what happens to its flows.` : ''}), async () => {
    await (added ? ask('DELETE', path) : ask('PATCH', path, {state: 'file'}));
    tell(`${d.member} is as the file says.`);
    done();
  });
}

// askToken asks for the token; wrong: the one that was given is not one. It returns a promise of it.
export function askToken(wrong) {
  return new Promise((done) => {
    const node = document.getElementById('token');
    const form = node.querySelector('form');
    document.getElementById('wrong-token').hidden = !wrong;
    form.onsubmit = (event) => {
      event.preventDefault();
      const value = form.elements.token.value.trim();
      if (!value) return;
      form.reset();
      node.close();
      done(value);
    };
    node.oncancel = (event) => event.preventDefault(); // there is nothing behind it
    if (!node.open) node.showModal();
  });
}
