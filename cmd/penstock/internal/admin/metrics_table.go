package admin

import (
	"cmp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/account"
	"github.com/penstock/penstock/cmd/penstock/internal/api"
	"github.com/penstock/penstock/relay"
	"github.com/penstock/penstock/relay/hold"
	"github.com/penstock/penstock/relay/stats"
)

// state is what the metrics of one scrape are made of.
type state struct {
	api.Status
	Counters
	total     stats.Loop
	listeners []api.Listener
	groups    []api.Group
	lists     []api.List
	bans      api.Bans
}

func readState(source Source) *state {
	o := snapshotOf(source)
	s := &state{Status: o.Status(), Counters: o.Counters(), listeners: o.Listeners(), groups: o.Groups(), lists: source.Lists().Lists, bans: source.Bans()}
	s.total = s.Engine.Total()
	return s
}

// metricSets registers every metric of the daemon. To add one, add a row to the set with its
// labels. client_golang provides the metrics of the Go runtime and of the process (go_*,
// process_*).
var metricSets = []anySet{
	&metricSet[state]{labels: []string{"version", "go"}, each: func(s *state, yield func(*state, labelValues)) {
		yield(s, labelValues{s.Version, runtime.Version()})
	}, metrics: []metric[state]{
		gauge("penstock_build_info", "Always 1, labeled with the versions of the daemon and of Go.", constantOne[state]),
	}},
	&metricSet[state]{labels: []string{"hash"}, each: func(s *state, yield func(*state, labelValues)) {
		yield(s, labelValues{s.Config.Hash})
	}, metrics: []metric[state]{
		gauge("penstock_config_info", "Always 1, labeled with the SHA-256 of the running configuration.", constantOne[state]),
	}},
	&metricSet[api.RemoteConfig]{labels: []string{"source", "version"}, each: func(s *state, yield func(*api.RemoteConfig, labelValues)) {
		for i := range s.Config.Remote {
			yield(&s.Config.Remote[i], labelValues{s.Config.Remote[i].Source, s.Config.Remote[i].Version})
		}
	}, metrics: []metric[api.RemoteConfig]{
		gauge("penstock_config_remote_info", "Always 1, labeled with the version that runs of a configuration in a registry.", constantOne[api.RemoteConfig]),
	}},
	&metricSet[api.RemoteConfig]{labels: []string{"source"}, each: func(s *state, yield func(*api.RemoteConfig, labelValues)) {
		for i := range s.Config.Remote {
			yield(&s.Config.Remote[i], labelValues{s.Config.Remote[i].Source})
		}
	}, metrics: []metric[api.RemoteConfig]{
		gauge("penstock_config_remote_up", "1 while the registry answers that a configuration comes from; 0 while it does not, or has none that can be used.", func(r *api.RemoteConfig) float64 { return boolValue(r.Error == "") }),
		gauge("penstock_config_remote_refused", "1 while the registry asks for a version that this relay cannot apply, so that the one before goes on.", func(r *api.RemoteConfig) float64 { return boolValue(r.Refused != nil) }),
		gauge("penstock_config_remote_saved", "1 while the version that runs is from the disk or from the worker before, because the registry has not answered yet.", func(r *api.RemoteConfig) float64 { return boolValue(r.Saved != "") }),
	}},
	&metricSet[api.Fleet]{each: func(s *state, yield func(*api.Fleet, labelValues)) {
		if s.Fleet != nil {
			yield(s.Fleet, labelValues{})
		}
	}, metrics: []metric[api.Fleet]{
		gauge("penstock_fleet_present", "1 while the relay reports to its fleet and gets orders; 0 while it has no contact, or another relay has the same id. Absent if it is in no fleet.", func(f *api.Fleet) float64 { return boolValue(f.Present) }),
		gauge("penstock_fleet_conflict", "1 while another relay has the same id, so that this one does not report.", func(f *api.Fleet) float64 { return boolValue(f.Conflict != "") }),
		counter("penstock_fleet_reports_total", "Reports written to the fleet's registry.", func(f *api.Fleet) float64 { return float64(f.Reports) }),
		counter("penstock_fleet_failures_total", "Requests to the fleet's registry that failed.", func(f *api.Fleet) float64 { return float64(f.Failures) }),
		gauge("penstock_fleet_shared_members", "Members whose health checks are shared with other relays.", func(f *api.Fleet) float64 { return float64(f.SharedMembers) }),
		gauge("penstock_fleet_checked_members", "Members whose health checks are shared, and that this relay checks.", func(f *api.Fleet) float64 { return float64(f.CheckedMembers) }),
	}},
	&metricSet[count]{labels: []string{"result"}, each: func(s *state, yield func(*count, labelValues)) {
		yield(&count{s.Reloads}, labelValues{"success"})
		yield(&count{s.FailedReloads}, labelValues{"failure"})
	}, metrics: []metric[count]{
		counter("penstock_config_reloads_total", "Reloads, by result (success or failure).", (*count).value),
	}},
	&metricSet[state]{each: oneSeries, metrics: []metric[state]{
		gauge("penstock_ready", "1 while the daemon takes new flows; 0 while it starts or drains.", func(s *state) float64 { return boolValue(s.State == api.StateReady) }),
		gauge("penstock_config_last_reload_successful", "1 if the last reload succeeded, or if there was none; 0 if it failed and changed nothing.", func(s *state) float64 { return boolValue(s.Config.Failed == nil) }),
		gauge("penstock_config_loaded_timestamp_seconds", "When the running configuration was loaded, in seconds since 1970.", func(s *state) float64 { return float64(s.Config.Loaded.UnixMilli()) / 1e3 }),
		counter("penstock_accept_errors_total", "Failed accepts.", func(s *state) float64 { return float64(s.total.AcceptErrors) }),
		counter("penstock_accept_pauses_total", "Pauses of accepting, for want of descriptors or memory.", func(s *state) float64 { return float64(s.total.AcceptPauses) }),
		counter("penstock_spliced_bytes_total", "Bytes that were moved inside the kernel, without a copy in user space.", func(s *state) float64 { return float64(s.total.BytesSpliced) }),
		counter("penstock_dropped_bytes_total", "Bytes that were read but not delivered.", func(s *state) float64 { return float64(s.total.BytesDropped) }),
		gauge("penstock_tls_flows", "Open flows whose TLS ends or begins in this worker. They end with it, unless it hands over and lingers.", func(s *state) float64 { return float64(s.Resources.TLSFlows) }),
		gauge("penstock_pipes_open", "Open pipes for splicing, two descriptors each.", func(s *state) float64 { return float64(s.Engine.PipesOpen) }),
		gauge("penstock_pipes_leased", "Pipes in use by a flow.", func(s *state) float64 { return float64(s.Engine.PipesLeased) }),
		gauge("penstock_pipes_limit", "Pipes that may be open at once.", func(s *state) float64 { return float64(s.Engine.PipesMax) }),
		counter("penstock_pipes_refused_total", "Times that no pipe was left, so that a direction copied instead.", func(s *state) float64 { return float64(s.Engine.PipesRefused) }),
		counter("penstock_datagrams_lost_total", "Datagrams that the kernel dropped before they could be read (SO_RXQ_OVFL).", func(s *state) float64 { return float64(s.total.Datagrams.Lost) }),
		counter("penstock_datagrams_crowded_total", "Datagrams of new clients that were dropped as limited because a loop had no time left for new flows.", func(s *state) float64 { return float64(s.total.Datagrams.Crowded) }),
		counter("penstock_gso_messages_total", "Messages sent that carried several datagrams (GSO).", func(s *state) float64 { return float64(s.total.Datagrams.Runs) }),
		counter("penstock_gso_fallbacks_total", "Messages of several datagrams that could not be sent as one, and were sent datagram by datagram.", func(s *state) float64 { return float64(s.total.Datagrams.Fallbacks) }),
		counter("penstock_gro_messages_total", "Messages received that carried several datagrams (GRO).", func(s *state) float64 { return float64(s.total.Datagrams.SuperPackets) }),
		counter("penstock_icmp_errors_total", "ICMP errors received on upstream sockets.", func(s *state) float64 { return float64(s.total.Datagrams.ICMPErrors) }),
		counter("penstock_datagram_answers_only_flows_total", "Datagram flows that a drain has left without a socket of their own: answers still reach their clients, and what these send does not reach the flow.", func(s *state) float64 { return float64(s.total.Datagrams.AnswersOnly) }),
		gauge("penstock_datagram_resting_sockets", "Upstream sockets of ended datagram flows that keep their port for a while, so that late replies reach no other client.", func(s *state) float64 { return float64(s.total.Datagrams.Resting) }),
		counter("penstock_datagram_resting_sockets_closed_early_total", "Resting sockets that were closed early to make room.", func(s *state) float64 { return float64(s.total.Datagrams.RestingClosedEarly) }),
		gauge("penstock_datagram_held_bytes", "Bytes of datagrams held while upstream sockets are full.", func(s *state) float64 { return float64(s.total.Datagrams.BytesHeld) }),
	}},

	&metricSet[api.Listener]{labels: []string{"listener"}, each: func(s *state, yield func(*api.Listener, labelValues)) {
		for i := range s.listeners {
			yield(&s.listeners[i], labelValues{s.listeners[i].Name})
		}
	}, metrics: []metric[api.Listener]{
		gauge("penstock_listener_open", "1 while the listener accepts clients; 0 while it pauses or drains.", func(l *api.Listener) float64 { return boolValue(l.State == "open") }),
		counter("penstock_listener_flows_total", "Clients that the listener accepted, including those that were then refused.", func(l *api.Listener) float64 { return float64(l.Begun) }),
	}},
	&metricSet[api.Listener]{labels: []string{"listener"}, each: func(s *state, yield func(*api.Listener, labelValues)) {
		for i := range s.listeners {
			if l := &s.listeners[i]; len(l.Certificates) > 0 {
				yield(l, labelValues{l.Name})
			}
		}
	}, metrics: []metric[api.Listener]{
		gauge("penstock_listener_certificates", "Certificates of a listener that terminates TLS.", func(l *api.Listener) float64 { return float64(len(l.Certificates)) }),
		gauge("penstock_listener_failing_files", "Files of certificates and keys of a listener that have changed and cannot be used, so that what was read before is.", func(l *api.Listener) float64 { return float64(len(l.FailingFiles)) }),
		counter("penstock_listener_certificate_failures_total", "Times that a changed file of certificates or keys of a listener could not be used.", func(l *api.Listener) float64 { return float64(l.CertificateFailures) }),
	}},
	&metricSet[api.Certificate]{labels: []string{"listener", "file"}, each: func(s *state, yield func(*api.Certificate, labelValues)) {
		for i := range s.listeners {
			l := &s.listeners[i]
			for j := range l.Certificates {
				yield(&l.Certificates[j], labelValues{l.Name, l.Certificates[j].File})
			}
		}
	}, metrics: []metric[api.Certificate]{
		gauge("penstock_listener_certificate_expiry_time_seconds", "Unix time of the end of a certificate that a listener shows, or of one of its chain that ends earlier.", func(c *api.Certificate) float64 { return unixSeconds(c.Expires) }),
	}},
	&metricSet[api.Certificate]{labels: []string{"listener", "file"}, each: func(s *state, yield func(*api.Certificate, labelValues)) {
		for i := range s.listeners {
			l := &s.listeners[i]
			for j := range l.Certificates {
				if c := &l.Certificates[j]; !c.StapleExpires.IsZero() {
					yield(c, labelValues{l.Name, c.File})
				}
			}
		}
	}, metrics: []metric[api.Certificate]{
		gauge("penstock_listener_ocsp_expiry_time_seconds", "Unix time of the end of the OCSP response of a certificate, which is not sent afterwards. Missing without one.", func(c *api.Certificate) float64 { return unixSeconds(c.StapleExpires) }),
	}},
	&metricSet[api.ProtocolCount]{labels: []string{"listener", "protocol"}, each: func(s *state, yield func(*api.ProtocolCount, labelValues)) {
		for i := range s.listeners {
			l := &s.listeners[i]
			for j := range l.Protocols {
				yield(&l.Protocols[j], labelValues{l.Name, l.Protocols[j].Protocol})
			}
		}
	}, metrics: []metric[api.ProtocolCount]{
		counter("penstock_listener_protocols_total", "Clients that were routed by their first bytes, by what they speak: a word of the key protocol, or unknown. Missing for listeners without routes that ask for it (protocol, prefix, host, silence).", func(p *api.ProtocolCount) float64 { return float64(p.Count) }),
	}},
	&metricSet[api.Refusal]{labels: []string{"listener", "reason"}, each: func(s *state, yield func(*api.Refusal, labelValues)) {
		for i := range s.Refusals {
			yield(&s.Refusals[i], labelValues{s.Refusals[i].Listener, s.Refusals[i].Reason})
		}
	}, metrics: []metric[api.Refusal]{
		counter("penstock_refusals_total", "Flows that the daemon refused or ended, by reason; see docs/causes.md.", func(r *api.Refusal) float64 { return float64(r.Count) }),
	}},

	&metricSet[account.Point]{labels: seriesLabels, each: eachPoint, metrics: []metric[account.Point]{
		gauge("penstock_flows_open", "Open flows.", func(p *account.Point) float64 { return float64(p.Open()) }),
	}},
	&metricSet[count]{labels: append(seriesLabels[:4:4], "cause"), each: func(s *state, yield func(*count, labelValues)) {
		var c count // one for all, so that yield does not make each allocate
		eachPoint(s, func(p *account.Point, v labelValues) {
			for cause, n := range p.Ended {
				if n > 0 {
					c.n, v[4] = n, relay.Cause(cause).String()
					yield(&c, v)
				}
			}
		})
	}, metrics: []metric[count]{
		counter("penstock_flows_ended_total", "Ended flows, by cause; see docs/causes.md.", (*count).value),
	}},
	&metricSet[account.Direction]{labels: append(seriesLabels[:4:4], "direction"), each: eachDirection, metrics: []metric[account.Direction]{
		counter("penstock_flow_bytes_total", "Bytes that the receiving socket has taken, by direction.", func(d *account.Direction) float64 { return float64(d.Bytes) }),
	}},
	&metricSet[account.Direction]{labels: append(seriesLabels[:4:4], "direction"), each: func(s *state, yield func(*account.Direction, labelValues)) {
		eachPoint(s, func(p *account.Point, _ labelValues) {
			if p.Up.Datagrams != 0 || p.Down.Datagrams != 0 { // streams have none
				yieldDirections(p, yield)
			}
		})
	}, metrics: []metric[account.Direction]{
		counter("penstock_flow_datagrams_total", "Datagrams that the receiving socket has taken, by direction.", func(d *account.Direction) float64 { return float64(d.Datagrams) }),
	}},
	&metricSet[account.Point]{labels: []string{"listener", "route", "group"}, each: eachRoute, metrics: []metric[account.Point]{
		histogram("penstock_connect_duration_seconds", "Time from the start of a flow until its upstream was connected, including retries but not the time in a queue.", func(p *account.Point) *account.Histogram { return &p.Connect }),
		histogram("penstock_first_byte_duration_seconds", "Time from the connect until the upstream's first byte.", func(p *account.Point) *account.Histogram { return &p.FirstByte }),
		histogram("penstock_flow_duration_seconds", "Duration of ended flows.", func(p *account.Point) *account.Histogram { return &p.Duration }),
	}},
	&metricSet[api.Part]{labels: []string{"listener", "route", "part"}, each: func(s *state, yield func(*api.Part, labelValues)) {
		for i := range s.listeners {
			l := &s.listeners[i]
			for j := range l.Routes {
				r := &l.Routes[j]
				for k := range r.Parts {
					yield(&r.Parts[k], labelValues{l.Name, r.Name, r.Parts[k].Name})
				}
			}
		}
	}, metrics: []metric[api.Part]{
		gauge("penstock_route_part_weight", "Weight of a part of a route that splits its clients. Its share is this divided by the sum of all. The group of the flows' metrics has the name of the part.", func(p *api.Part) float64 { return float64(p.Weight) }),
		counter("penstock_route_part_flows_total", "Flows that have begun in a part of a route that splits its clients; of the part refuse, those that it has refused.", func(p *api.Part) float64 { return float64(p.Begun) }),
	}},
	&metricSet[api.List]{labels: []string{"list"}, each: func(s *state, yield func(*api.List, labelValues)) {
		for i := range s.lists {
			yield(&s.lists[i], labelValues{s.lists[i].Name})
		}
	}, metrics: []metric[api.List]{
		gauge("penstock_list_networks", "Networks in a list, without those that others contain.", func(l *api.List) float64 { return float64(l.Networks) }),
		gauge("penstock_list_bytes", "Memory of the networks of a list.", func(l *api.List) float64 { return float64(l.Bytes) }),
		gauge("penstock_list_bad_lines", "Lines that were left out of a list because they are not networks.", func(l *api.List) float64 { return float64(l.BadLines) }),
		gauge("penstock_list_loaded_timestamp_seconds", "When the list was loaded last. 0: never.", func(l *api.List) float64 { return unixSeconds(l.Loaded) }),
		gauge("penstock_list_failing", "1 while the list cannot be loaded; what was loaded before stays.", func(l *api.List) float64 { return boolValue(l.Error != "") }),
		gauge("penstock_list_saved", "1 while the list is as an earlier service has loaded and saved it, because it was not loaded since the start.", func(l *api.List) float64 { return boolValue(l.Saved) }),
		counter("penstock_list_failures_total", "Attempts to load the list that failed.", func(l *api.List) float64 { return float64(l.Failures) }),
		counter("penstock_list_hits_total", "Clients that were looked up in the list and found.", func(l *api.List) float64 { return float64(l.Hits) }),
	}},
	&metricSet[api.Bans]{each: func(s *state, yield func(*api.Bans, labelValues)) { yield(&s.bans, labelValues{}) }, metrics: []metric[api.Bans]{
		gauge("penstock_bans", "Networks that operators have banned.", func(b *api.Bans) float64 { return float64(len(b.Bans)) }),
		counter("penstock_ban_hits_total", "Clients that were refused because they are banned.", func(b *api.Bans) float64 { return float64(b.Hits) }),
	}},
	&metricSet[count]{labels: []string{"result"}, each: func(s *state, yield func(*count, labelValues)) {
		if n := s.Names; n != nil {
			yield(&count{n.Found}, labelValues{"found"})
			yield(&count{n.NotFound}, labelValues{"not-found"})
			yield(&count{n.Failed}, labelValues{"failed"})
		}
	}, metrics: []metric[count]{
		counter("penstock_name_lookups_total", "Lookups of names that clients have asked for, by result. Missing without groups with a destination.", (*count).value),
	}},
	&metricSet[api.Names]{each: func(s *state, yield func(*api.Names, labelValues)) {
		if s.Names != nil {
			yield(s.Names, labelValues{})
		}
	}, metrics: []metric[api.Names]{
		counter("penstock_name_hits_total", "Flows whose name was known when they asked for it.", func(n *api.Names) float64 { return float64(n.Hits) }),
		counter("penstock_name_waits_total", "Flows that have waited for the lookup of their name.", func(n *api.Names) float64 { return float64(n.Waits) }),
		counter("penstock_name_limited_total", "Flows that were refused because too many names were being looked up, for their source or for all.", func(n *api.Names) float64 { return float64(n.Limited) }),
		counter("penstock_name_evicted_total", "Names that were forgotten to make room, before their answer had expired.", func(n *api.Names) float64 { return float64(n.Evicted) }),
		gauge("penstock_names", "Names with addresses that are known.", func(n *api.Names) float64 { return float64(n.Names) }),
		gauge("penstock_names_failed", "Names without an address that are known.", func(n *api.Names) float64 { return float64(n.Failures) }),
		gauge("penstock_name_lookups", "Names that are being looked up.", func(n *api.Names) float64 { return float64(n.Lookups) }),
		gauge("penstock_name_lookups_queued", "Names that wait to be looked up.", func(n *api.Names) float64 { return float64(n.Queued) }),
		gauge("penstock_name_flows", "Flows that wait for the lookup of their name.", func(n *api.Names) float64 { return float64(n.Flows) }),
	}},
	&metricSet[count]{labels: []string{"by"}, each: func(s *state, yield func(*count, labelValues)) {
		if q := s.QUIC; q != nil {
			yield(&count{q.ServerID}, labelValues{"server-id"})
			yield(&count{q.Learned}, labelValues{"learned"})
			yield(&count{q.Unknown}, labelValues{"unknown"})
		}
	}, metrics: []metric[count]{
		counter("penstock_quic_moved_flows_total", "Flows of QUIC clients whose connection had begun elsewhere, by how its member was found. unknown: it was not, and the group has chosen one. Missing where there were none.", (*count).value),
	}},
	&metricSet[api.QUIC]{each: func(s *state, yield func(*api.QUIC, labelValues)) {
		if s.QUIC != nil {
			yield(s.QUIC, labelValues{})
		}
	}, metrics: []metric[api.QUIC]{
		gauge("penstock_quic_ids", "Connection IDs of QUIC that were learned, of open flows.", func(q *api.QUIC) float64 { return float64(q.IDs) }),
	}},
	&metricSet[api.PathCount]{labels: []string{"path", "why"}, each: func(s *state, yield func(*api.PathCount, labelValues)) {
		for i := range s.Paths {
			yield(&s.Paths[i], labelValues{s.Paths[i].Path, s.Paths[i].Why})
		}
	}, metrics: []metric[api.PathCount]{
		counter("penstock_flow_directions_total", "Directions of ended flows, by data path, and by the reason why a faster path was not taken (empty: the fastest path was).", func(p *api.PathCount) float64 { return float64(p.Directions) }),
	}},

	&metricSet[count]{labels: []string{"group", "state"}, each: eachMemberState, metrics: []metric[count]{
		gauge("penstock_group_members", "Members of the group, by state.", (*count).value),
	}},
	&metricSet[api.Group]{labels: []string{"group"}, each: func(s *state, yield func(*api.Group, labelValues)) {
		for i := range s.groups {
			yield(&s.groups[i], labelValues{s.groups[i].Name})
		}
	}, metrics: []metric[api.Group]{
		gauge("penstock_group_panic", "1 while the group is in panic mode: too few members are healthy, so all take flows.", func(g *api.Group) float64 { return boolValue(g.Panic) }),
		counter("penstock_group_retries_total", "Connects that were retried at another member.", func(g *api.Group) float64 { return float64(g.Retries) }),
		counter("penstock_down_kept_flows_total", "Flows that continued although their member went down and the group has down, because most of the group went down at once.", func(g *api.Group) float64 { return float64(g.DownKept) }),
		gauge("penstock_queue_size", "Flows that the queue of the group can hold.", func(g *api.Group) float64 { return float64(g.Queue.Size) }),
		gauge("penstock_queue_flows", "Flows in the queue now.", func(g *api.Group) float64 { return float64(g.Queue.Flows) }),
		counter("penstock_queued_flows_total", "Flows that entered the queue.", func(g *api.Group) float64 { return float64(g.Queue.QueuedTotal) }),
		counter("penstock_queue_timeouts_total", "Flows that were refused because they had queued for too long.", func(g *api.Group) float64 { return float64(g.Queue.TimedOut) }),
		counter("penstock_queue_full_total", "Flows that were refused because the queue was full.", func(g *api.Group) float64 { return float64(g.Queue.Full) }),
	}},
	&metricSet[api.Lookup]{labels: []string{"group", "name"}, each: func(s *state, yield func(*api.Lookup, labelValues)) {
		for i := range s.groups {
			g := &s.groups[i]
			for j := range g.Lookups {
				yield(&g.Lookups[j], labelValues{g.Name, g.Lookups[j].Name})
			}
		}
	}, metrics: []metric[api.Lookup]{
		gauge("penstock_lookup_success", "1 if the last lookup of the name found addresses; 0 if it failed, while the members of the last good one may still be in use.", func(l *api.Lookup) float64 { return boolValue(l.Error == "" && !l.Time.IsZero()) }),
		gauge("penstock_lookup_members", "Members that the name resolves to.", func(l *api.Lookup) float64 { return float64(l.Members) }),
		gauge("penstock_lookup_good_time_seconds", "Unix time of the last good answer, 0 before the first one. A registry that is watched answers when something changes, and when it can be reached again.", func(l *api.Lookup) float64 { return unixSeconds(l.GoodTime) }),
		counter("penstock_lookup_failures_total", "Failed lookups of the name.", func(l *api.Lookup) float64 { return float64(l.Failures) }),
	}},
	&metricSet[api.Member]{labels: []string{"group", "member", "address"}, each: func(s *state, yield func(*api.Member, labelValues)) {
		for i := range s.groups {
			g := &s.groups[i]
			for j := range g.Members {
				yield(&g.Members[j], labelValues{g.Name, g.Members[j].Name, g.Members[j].Address})
			}
		}
	}, metrics: []metric[api.Member]{
		gauge("penstock_member_up", "1 while the member takes new flows.", func(m *api.Member) float64 { return boolValue(m.Available) }),
		gauge("penstock_member_weight", "Weight of the member, 1 to 256.", func(m *api.Member) float64 { return float64(m.Weight) }),
		counter("penstock_member_connects_total", "Successful connects to the member.", func(m *api.Member) float64 { return float64(m.Connects) }),
		counter("penstock_member_connect_failures_total", "Failed connects to the member.", func(m *api.Member) float64 { return float64(m.Failures) }),
		counter("penstock_member_connect_seconds_total", "Total time of the successful connects; divided by their number, the mean.", func(m *api.Member) float64 { return m.ConnectSeconds }),
		counter("penstock_member_answers_total", "Flows that have ended in which the member sent a byte.", func(m *api.Member) float64 { return float64(m.Answers) }),
		counter("penstock_member_first_byte_seconds_total", "Total time from the connect until the member's first byte, of the flows that have ended; divided by penstock_member_answers_total, the mean.", func(m *api.Member) float64 { return m.FirstByteSeconds }),
	}},
	&metricSet[api.Member]{labels: []string{"group", "member", "address"}, each: func(s *state, yield func(*api.Member, labelValues)) {
		for i := range s.groups {
			g := &s.groups[i]
			for j := range g.Members {
				if c := g.Members[j].Check; c != nil && !c.CertificateExpires.IsZero() {
					yield(&g.Members[j], labelValues{g.Name, g.Members[j].Name, g.Members[j].Address})
				}
			}
		}
	}, metrics: []metric[api.Member]{
		gauge("penstock_member_certificate_expiry_time_seconds", "Unix time of the end of the certificate that the member has shown in its last health check over TLS. Missing without such checks.", func(m *api.Member) float64 { return unixSeconds(m.Check.CertificateExpires) }),
	}},
	&metricSet[api.Member]{labels: []string{"group", "member", "address"}, each: func(s *state, yield func(*api.Member, labelValues)) {
		for i := range s.groups {
			g := &s.groups[i]
			for j := range g.Members {
				if g.Members[j].Agent != nil {
					yield(&g.Members[j], labelValues{g.Name, g.Members[j].Name, g.Members[j].Address})
				}
			}
		}
	}, metrics: []metric[api.Member]{
		gauge("penstock_member_agent_success", "1 if the member's agent answered when it was last asked, and every word was one that is known; 0 otherwise, while what it has said before still holds. Missing without an agent.", func(m *api.Member) float64 { return boolValue(m.Agent.Error == "") }),
	}},

	&metricSet[api.Loop]{labels: []string{"loop"}, each: func(s *state, yield func(*api.Loop, labelValues)) {
		for i := range s.Loops {
			yield(&s.Loops[i], labelValues{strconv.Itoa(i)})
		}
	}, metrics: []metric[api.Loop]{
		gauge("penstock_loop_flows", "Open flows of the event loop.", func(l *api.Loop) float64 { return float64(l.Flows) }),
		counter("penstock_loop_events_total", "Events that the loop handled.", func(l *api.Loop) float64 { return float64(l.Events) }),
		counter("penstock_loop_busy_seconds_total", "Time that the loop was not waiting; its rate is the used share of a CPU.", func(l *api.Loop) float64 { return l.Busy }),
		counter("penstock_loop_waits_total", "Calls of epoll_wait.", func(l *api.Loop) float64 { return float64(l.Waits) }),
		counter("penstock_loop_wakeups_total", "Calls of epoll_wait that had to sleep.", func(l *api.Loop) float64 { return float64(l.Wakeups) }),
		gauge("penstock_loop_longest_turn_seconds", "Longest turn of the loop, from one wait to the next, in the last 15 to 30 seconds.", func(l *api.Loop) float64 { return l.LongestTurn }),
	}},
	&metricSet[api.OverloadResource]{labels: []string{"resource"}, each: func(s *state, yield func(*api.OverloadResource, labelValues)) {
		for i := range s.Overload.Resources {
			yield(&s.Overload.Resources[i], labelValues{s.Overload.Resources[i].Name})
		}
	}, metrics: []metric[api.OverloadResource]{
		gauge("penstock_overload_pressure", "Used share of a resource that has a limit, 0 to 1, and above 1 beyond the limit.", func(r *api.OverloadResource) float64 { return r.Pressure }),
		gauge("penstock_overload_limit", "Limit of the resource, in its own unit: bytes of memory, descriptors.", func(r *api.OverloadResource) float64 { return float64(r.Limit) }),
	}},
	&metricSet[api.OverloadAction]{labels: []string{"action", "resource"}, each: func(s *state, yield func(*api.OverloadAction, labelValues)) {
		for i := range s.Overload.Actions {
			yield(&s.Overload.Actions[i], labelValues{s.Overload.Actions[i].Name, s.Overload.Actions[i].Resource})
		}
	}, metrics: []metric[api.OverloadAction]{
		gauge("penstock_overload_active", "1 while the daemon does this because a resource is short.", func(a *api.OverloadAction) float64 { return boolValue(a.Active) }),
		counter("penstock_overload_shed_total", "What the action has turned away, ended or given back: flows or datagrams.", func(a *api.OverloadAction) float64 { return float64(a.Count) }),
	}},
	&metricSet[count]{labels: []string{"reason"}, each: func(s *state, yield func(*count, labelValues)) {
		for reason, n := range s.total.Datagrams.Dropped.All() {
			yield(&count{n}, labelValues{reason.String()})
		}
	}, metrics: []metric[count]{
		counter("penstock_datagrams_dropped_total", "Datagrams that were read but not delivered, by reason.", (*count).value),
	}},
	&metricSet[poolClass]{labels: []string{"pool"}, each: func(s *state, yield func(*poolClass, labelValues)) {
		for _, c := range s.Engine.Buffers.Classes {
			p := poolClass{gets: float64(c.Gets), allocations: float64(c.Gets - c.Hits), idle: float64(c.Kept), buffers: float64(c.Kept) + float64(c.Gets-c.Puts)}
			yield(&p, labelValues{"buffers-" + strconv.Itoa(c.Size)})
		}
	}, metrics: []metric[poolClass]{
		counter("penstock_pool_gets_total", "Buffers taken from the pool.", func(p *poolClass) float64 { return p.gets }),
		counter("penstock_pool_allocations_total", "Buffers that had to be allocated.", func(p *poolClass) float64 { return p.allocations }),
		gauge("penstock_pool_idle_buffers", "Unused buffers in the pool.", func(p *poolClass) float64 { return p.idle }),
		gauge("penstock_pool_buffers", "Buffers of the pool, used and unused.", func(p *poolClass) float64 { return p.buffers }),
	}},
	&metricSet[api.SandboxLayer]{labels: []string{"layer"}, each: func(s *state, yield func(*api.SandboxLayer, labelValues)) {
		if s.Sandbox != nil {
			for i := range s.Sandbox.Layers {
				yield(&s.Sandbox.Layers[i], labelValues{s.Sandbox.Layers[i].Name})
			}
		}
	}, metrics: []metric[api.SandboxLayer]{
		gauge("penstock_sandbox_held", "1 if a layer of the sandbox holds; 0 if the kernel or the configuration does not allow it. Missing with sandbox.mode: off. See docs/sandbox.md.", func(l *api.SandboxLayer) float64 { return boolValue(l.Held) }),
	}},
	&metricSet[api.Keeper]{each: func(s *state, yield func(*api.Keeper, labelValues)) {
		if s.Keeper != nil {
			yield(s.Keeper, labelValues{})
		}
	}, metrics: []metric[api.Keeper]{
		gauge("penstock_keeper_up", "1 while the keeper runs; 0 if it is gone, so that flows would end with the worker. Missing without a keeper, like the other metrics of the keeper.", func(k *api.Keeper) float64 { return boolValue(k.Up) }),
		gauge("penstock_keeper_flows", "Open flows that would continue if the worker died now.", func(k *api.Keeper) float64 { return float64(k.Flows) }),
		gauge("penstock_keeper_items", "What the keeper holds: flows, sockets of listeners, pipes and shared memory.", func(k *api.Keeper) float64 { return float64(k.Held) }),
		gauge("penstock_keeper_lingering_workers", "Workers that have handed over and go on with the TLS of flows; see keeper.linger.", func(k *api.Keeper) float64 { return float64(len(k.Lingering)) }),
		counter("penstock_keeper_errors_total", "Attempts to have a flow held that failed. Most are repeated.", func(k *api.Keeper) float64 { return float64(k.Errors) }),
		counter("penstock_keeper_restored_flows_total", "Flows that continued in another worker.", func(k *api.Keeper) float64 { return float64(k.Total.Restored) }),
		counter("penstock_keeper_holding_flows_total", "Of the restored flows, those of which the worker before had read bytes that it had not delivered.", func(k *api.Keeper) float64 { return float64(k.Total.Holding) }),
		counter("penstock_keeper_held_bytes_total", "Bytes that a worker had read and not delivered when it ended, and that the next one delivered.", func(k *api.Keeper) float64 { return float64(k.Total.Bytes) }),
		counter("penstock_keeper_pause_seconds_total", "Time that traffic stood still between the end of a worker and the start of the next one.", func(k *api.Keeper) float64 { return k.Pause }),
	}},
	&metricSet[api.StartCount]{labels: []string{"reason"}, each: func(s *state, yield func(*api.StartCount, labelValues)) {
		if s.Keeper == nil {
			return
		}
		for i := range s.Keeper.Starts {
			yield(&s.Keeper.Starts[i], labelValues{s.Keeper.Starts[i].Reason})
		}
	}, metrics: []metric[api.StartCount]{
		counter("penstock_keeper_worker_starts_total", "Workers that were started after the first one, by reason (crash, upgrade, rollback, restart).", func(c *api.StartCount) float64 { return float64(c.Count) }),
	}},
	&metricSet[count]{labels: []string{"reason"}, each: func(s *state, yield func(*count, labelValues)) {
		if s.Keeper == nil {
			return
		}
		for l := range (stats.Counts[hold.Loss]{}).All() {
			n := int64(0)
			for _, lost := range s.Keeper.Total.Lost {
				if lost.Reason == l.String() {
					n = lost.Count
				}
			}
			yield(&count{n}, labelValues{l.String()})
		}
	}, metrics: []metric[count]{
		counter("penstock_keeper_lost_flows_total", "Flows that ended with their worker, by reason; see docs/upgrades.md.", (*count).value),
	}},
	&metricSet[LogCounters]{labels: []string{"log"}, each: func(s *state, yield func(*LogCounters, labelValues)) {
		for i := range s.Logs {
			yield(&s.Logs[i], labelValues{s.Logs[i].Name})
		}
	}, metrics: []metric[LogCounters]{
		counter("penstock_log_lines_dropped_total", "Lines that were not written, because the log was too slow, writing failed or a worker was killed, by log (log: the log of the daemon; access: the access log).", func(l *LogCounters) float64 { return float64(l.Dropped) }),
		counter("penstock_log_lines_left_out_total", "Lines that were left out because their message came too often, by log.", func(l *LogCounters) float64 { return float64(l.LeftOut) }),
	}},
}

// seriesLabels are the labels of a series of flows.
var seriesLabels = []string{"listener", "route", "group", "member"}

func oneSeries(s *state, yield func(*state, labelValues)) { yield(s, labelValues{}) }

func constantOne[T any](*T) float64 { return 1 }

// count is an item that is only a number.
type count struct{ n int64 }

func (c *count) value() float64 { return float64(c.n) }

// poolClass is one size of the buffers of the engine.
type poolClass struct{ gets, allocations, idle, buffers float64 }

// eachPoint leaves out [account.Gone].
func eachPoint(s *state, yield func(*account.Point, labelValues)) {
	for i := range s.Points {
		if p := &s.Points[i]; p.Member != account.Gone {
			yield(p, labelValues{p.Listener, p.Route, p.Group, p.Member})
		}
	}
}

func eachDirection(s *state, yield func(*account.Direction, labelValues)) {
	eachPoint(s, func(p *account.Point, _ labelValues) { yieldDirections(p, yield) })
}

func yieldDirections(p *account.Point, yield func(*account.Direction, labelValues)) {
	yield(&p.Up, labelValues{p.Listener, p.Route, p.Group, p.Member, "up"})
	yield(&p.Down, labelValues{p.Listener, p.Route, p.Group, p.Member, "down"})
}

// eachRoute yields the sums of the histograms over the members of each listener, route and
// group. A histogram for each member would be too many series.
func eachRoute(s *state, yield func(*account.Point, labelValues)) {
	sums := map[account.Key]*account.Point{}
	for i := range s.Points {
		p := &s.Points[i]
		k := p.Key
		k.Member = ""
		sum := sums[k]
		if sum == nil {
			sum = &account.Point{Key: k}
			sums[k] = sum
		}
		sum.Connect.Add(&p.Connect)
		sum.FirstByte.Add(&p.FirstByte)
		sum.Duration.Add(&p.Duration)
	}
	list := make([]*account.Point, 0, len(sums))
	for _, p := range sums {
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *account.Point) int {
		return cmp.Or(cmp.Compare(a.Listener, b.Listener), cmp.Compare(a.Route, b.Route), cmp.Compare(a.Group, b.Group))
	})
	for _, p := range list {
		yield(p, labelValues{p.Listener, p.Route, p.Group})
	}
}

func eachMemberState(s *state, yield func(*count, labelValues)) {
	for i := range s.groups {
		if s.groups[i].Destination != "" {
			continue // it has no members that could be down
		}
		members := map[string]int64{}
		for j := range s.groups[i].Members {
			members[s.groups[i].Members[j].State]++
		}
		for _, state := range api.States {
			yield(&count{members[state]}, labelValues{s.groups[i].Name, state})
		}
	}
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// unixSeconds returns a time for a metric; 0: never.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}
