'use strict';
'require view';
'require fs';
'require poll';
'require ui';

// The page of sumlink in LuCI: what `sumlink status` reports, and the priority of each link.

const PROGRAM = '/usr/bin/sumlink';

// The control sockets of the services in /etc/init.d.
const SERVICES = [
	{ name: 'sumlink-client', socket: '/var/run/sumlink-client/control.sock' },
	{ name: 'sumlink-gateway', socket: '/run/sumlink/gateway.sock' },
	{ name: 'sumlink-server', socket: '/var/run/sumlink-server/control.sock' }
];

const PRIORITIES = [ 'primary', 'secondary', 'backup', 'never' ];

const POLL_SECONDS = 2;

// An element with a text. LuCI takes a string outside of a list for markup, and texts contain names
// and errors that others choose.
function text(name, words, attributes) {
	return E(name, attributes || {}, [ words ]);
}

function rate(bps) {
	const units = [ 'bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s' ];
	let unit = 0;
	while (bps >= 1000 && unit < units.length - 1) {
		bps /= 1000;
		unit++;
	}
	return '%s %s'.format(unit ? bps.toFixed(1) : Math.round(bps), units[unit]);
}

// The reports of all services that run, and the error of each that does not answer as it should.
function reports() {
	return Promise.all(SERVICES.map(service =>
		fs.exec(PROGRAM, [ 'status', '--json', '--control', service.socket ]).then(result => {
			// 8: no service listens there.
			if (result.code === 8)
				return { service };
			if (result.code !== 0)
				return { service, error: (result.stderr || '').trim() };
			return { service, report: JSON.parse(result.stdout) };
		}).catch(error => ({ service, error: error.message }))));
}

function policyOf(report, link) {
	return (report.policies || []).find(policy => policy.name === link);
}

function setPriority(service, link, priority) {
	const args = [ 'link', link, '--control', service.socket, '--priority', priority ];
	return fs.exec(PROGRAM, args).then(result => {
		if (result.code !== 0)
			throw new Error((result.stderr || '').trim() || 'exit code ' + result.code);
		ui.addNotification(null, text('p', _('The priority of %s is %s until the service ends.').format(link, priority)), 'info');
	}).catch(error => {
		ui.addNotification(null, text('p', error.message), 'danger');
	});
}

function priorityOf(service, report, link) {
	const policy = policyOf(report, link);
	if (!policy)
		return '';
	const options = PRIORITIES.map(priority =>
		text('option', priority, priority === policy.priority ? { selected: '' } : {}));
	return E('select', {
		'class': 'cbi-input-select',
		'aria-label': _('Priority of %s').format(link),
		'change': event => setPriority(service, link, event.target.value)
	}, options);
}

function row(cells) {
	return E('tr', { 'class': 'tr' }, cells.map(cell => E('td', { 'class': 'td' }, [ cell ])));
}

function table(titles, rows) {
	const head = E('tr', { 'class': 'tr table-titles' }, titles.map(title => text('th', title, { 'class': 'th' })));
	return E('table', { 'class': 'table' }, [ head, ...rows ]);
}

function links(service, report, session) {
	const rows = session.paths.map(path => row([
		path.link,
		path.state,
		path.reason,
		'%d ms'.format(Math.round(path.srtt_ms)),
		rate(path.receive_rate_bps),
		rate(path.send_rate_bps),
		priorityOf(service, report, path.link)
	]));
	const titles = [ _('Link'), _('State'), _('Reason'), _('Round trip'), _('Received'), _('Sent'), _('Priority') ];
	return [
		text('p', _('Session with %s: received %s, sent %s.').format(
			session.server || session.client || session.peer,
			rate(session.receive_goodput_bps), rate(session.send_goodput_bps))),
		table(titles, rows)
	];
}

function part(one) {
	const title = text('h3', one.service.name);
	if (one.error)
		return [ title, text('p', one.error, { 'class': 'alert-message warning' }) ];
	const sessions = one.report.sessions.map(session => links(one.service, one.report, session));
	const note = one.report.note ? [ text('p', one.report.note) ] : [];
	const none = sessions.length ? [] : [ text('p', _('No session.')) ];
	return [ title, ...note, ...none, ...sessions.flat() ];
}

function content(all) {
	const known = all.filter(one => one.report || one.error);
	return known.length ? known.map(part).flat() : [
		text('p', _('No service of sumlink runs. Edit the files in /etc/sumlink, then: service sumlink-client start'))
	];
}

return view.extend({
	load: reports,

	render: function(all) {
		const place = E('div', { 'class': 'cbi-section' }, content(all));
		poll.add(() => reports().then(all => {
			// A list that is open would close.
			if (place.contains(document.activeElement))
				return;
			place.replaceChildren(...content(all));
		}), POLL_SECONDS);
		return E([], [ text('h2', 'sumlink'), place ]);
	},

	handleSave: null,
	handleSaveApply: null,
	handleReset: null
});
