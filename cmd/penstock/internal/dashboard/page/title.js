// The tab's title and icon: what can be seen of the page when it cannot be seen.

// The icons are fetched at the beginning: a daemon that is gone has none to give.
const icons = {};
for (const name of ['icon', 'icon-bad', 'icon-gone']) {
  fetch(name + '.svg').then(async (resp) => {
    if (resp.ok) icons[name] = 'data:image/svg+xml,' + encodeURIComponent(await resp.text());
    title({});
  }).catch(() => {}); // the one of index.html stays
}

const is = {connection: 'connecting', state: '', problems: 0, bad: 0};

// title takes what has changed of connection, state, problems and bad.
export function title(change) {
  Object.assign(is, change);
  const [mark, what] =
    is.connection === 'gone' ? ['✕', 'not reachable'] :
    is.connection !== 'live' ? ['…', {stale: 'no news', locked: 'token wanted'}[is.connection] || 'connecting'] :
    is.state === 'draining' ? ['▼', 'draining'] :
    is.problems ? [is.bad ? '✕' : '▲', `${is.problems} ${is.problems === 1 ? 'problem' : 'problems'}`] : ['', ''];
  const text = what ? `${mark} ${what} – Penstock` : 'Penstock';
  if (document.title !== text) document.title = text;
  const icon = icons[is.connection !== 'live' ? 'icon-gone' : is.bad ? 'icon-bad' : 'icon'];
  const link = document.querySelector('link[rel=icon]');
  if (icon && link.getAttribute('href') !== icon) link.setAttribute('href', icon);
}
