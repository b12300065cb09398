// Questions, and what came of them.

import {ask} from './api.js';
import {el, say, text} from './dom.js';

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

// confirm asks before something is changed: act is called when the answer is yes,
// and what it throws is shown, with the question still there.
export function confirm(title, yes, body, act, dangerous = true) {
  const error = el('p.problem', {role: 'alert', hidden: true});
  const go = el(dangerous ? 'button.danger' : 'button.primary', {type: 'submit'}, yes);
  const form = el('form', {}, ...body, error, el('footer', {}, el('button', {type: 'button', autofocus: dangerous, onclick: () => node.close()}, 'Cancel'), go));
  const node = dialog(title, 'confirm', form);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await act(new FormData(form));
      node.close();
    } catch (err) {
      if (err.status === undefined) throw err;
      say(error, err);
    } finally {
      go.disabled = false;
    }
  });
  return node;
}

// killFlow asks, and ends one flow.
export function killFlow(flow, done) {
  confirm('End flow ' + flow.id + '?', 'End the flow', [
    el('p', {}, flow.client + ' → ' + (flow.upstream || flow.listener)),
    el('p.quiet', {}, 'Both connections are closed at once; what is under way is lost.'),
  ], async () => {
    await ask('DELETE', '/v1/flows/' + flow.id);
    tell('Flow ' + flow.id + ' was ended.');
    done();
  });
}

const changes = [
  ['', 'Leave the state as it is', ''],
  ['enable', 'Enable', 'takes new flows, whatever the file says; health still decides'],
  ['drain', 'Drain', 'takes no new flows; those that are there go on'],
  ['disable', 'Disable', 'takes no new flows; those that are there are ended'],
  ['file', 'As the file says', 'forgets what was set here'],
];

// changeMember asks what shall become of a member. An address may be in a group
// by several names, and a name have several addresses: the narrower one is used.
export function changeMember(group, member, done) {
  const count = (key) => group.members.filter((m) => m.name === key || m.address === key).length;
  const key = count(member.address) <= count(member.name) ? member.address : member.name;
  const flows = member.flows === 1 ? '1 flow is' : member.flows + ' flows are';
  const weight = el('input', {type: 'number', name: 'weight', id: 'weight', min: 0, max: 256, step: 1, value: member.weight, required: true});
  const also = count(key) > 1 ? el('p.quiet', {}, `${count(key)} members of this group have that name or address; all change.`) : null;
  confirm('Change ' + member.name, 'Change the member', [
    el('p.quiet', {}, `${member.address} in ${group.name}: ${member.state}, ${flows} open. It lasts until the process ends, or the file says something else.`), also,
    el('fieldset', {}, el('legend', {}, 'New flows'), ...changes.map(([value, name, what]) => el('label.choice', {},
      el('input', {type: 'radio', name: 'state', value, checked: value === '', autofocus: value === ''}), el('span', {}, name, what && el('span.quiet', {}, ' – ' + what))))),
    el('p', {}, el('label', {for: 'weight'}, 'Weight '), weight, el('span.quiet', {}, ' 1 to 256; 0: the file’s')),
  ].filter(Boolean), async (form) => {
    const change = {};
    if (form.get('state')) change.state = form.get('state');
    if (Number(form.get('weight')) !== member.weight) change.weight = Number(form.get('weight'));
    const now = await ask('PATCH', `/v1/groups/${encodeURIComponent(group.name)}/members/${encodeURIComponent(key)}`, change);
    tell(`${member.name} is ${now.members[0].state}, weight ${now.members[0].weight}.`);
    done();
  }, false);
}

// askToken asks for the token; wrong: the one that was given is none. It returns a promise of it.
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
