// The tab's title and icon: what can be seen of the page when it cannot be seen.

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
  const icon = is.connection !== 'live' ? 'icon-gone.svg' : is.bad ? 'icon-bad.svg' : 'icon.svg';
  const link = document.querySelector('link[rel=icon]');
  if (link.getAttribute('href') !== icon) link.setAttribute('href', icon);
}
