package admin

import dto "github.com/prometheus/client_model/go"

// metric is one of the table below.
type metric int

// The metrics, in the order of docs/metrics.md.
const (
	buildInfo metric = iota
	ready
	configInfo
	reloads
	reloadGood
	reloadTime

	listenerOpen
	listenerFlows
	refusals
	acceptErrors
	acceptPauses

	flowsOpen
	flowsEnded
	flowBytes
	flowDatagrams
	connectTime
	firstByteTime
	flowTime

	groupMembers
	groupRetries
	queueSize
	queueWaiting
	queueFlows
	queueTimeouts
	queueFull
	lookupGood
	lookupMembers
	lookupFailures

	memberUp
	memberWeight
	memberConnects
	memberFailures
	memberConnectTime

	loopFlows
	loopEvents
	loopBusy
	loopWaits
	loopWakeups
	loopLongest

	pathWays
	splicedBytes
	droppedBytes
	pipesOpen
	pipesLeased
	pipesMax
	pipesRefused

	datagramDrops
	kernelDrops
	gsoRuns
	gsoFallbacks
	groSupers
	icmpErrors
	restingSockets
	restsCut
	heldBytes

	poolGets
	poolNews
	poolKept
	poolLive
	logDrops

	metricCount
)

const (
	counter   = dto.MetricType_COUNTER
	gauge     = dto.MetricType_GAUGE
	histogram = dto.MetricType_HISTOGRAM
)

// meaning is what is said about a metric in an exposition and in docs/metrics.md.
type meaning struct {
	name   string
	kind   dto.MetricType
	help   string
	labels []string
}

// Labels that several metrics share.
var (
	ofSeries = []string{"listener", "route", "group", "member"}
	ofTimes  = []string{"listener", "route", "group"}
	ofMember = []string{"group", "member", "address"}
)

// table has every metric of the daemon itself. Those of the Go runtime and of the
// process (go_*, process_*) come from client_golang.
var table = [metricCount]meaning{
	buildInfo:  {"penstock_build_info", gauge, "1, with the version of the daemon and of Go.", []string{"version", "go"}},
	ready:      {"penstock_ready", gauge, "1 while the daemon takes new flows, 0 while it starts or drains.", nil},
	configInfo: {"penstock_config_info", gauge, "1, with the SHA-256 of the configuration in force.", []string{"hash"}},
	reloads:    {"penstock_config_reloads_total", counter, "Reloads that were asked for.", []string{"result"}},
	reloadGood: {"penstock_config_last_reload_successful", gauge, "1 if the last reload put its file in force, or if there was none; 0 if it changed nothing.", nil},
	reloadTime: {"penstock_config_loaded_timestamp_seconds", gauge, "When the configuration in force was loaded.", nil},

	listenerOpen:  {"penstock_listener_open", gauge, "1 while the listener accepts, 0 while it rests or drains.", []string{"listener"}},
	listenerFlows: {"penstock_listener_flows_total", counter, "Clients that came to the listener, refused ones too.", []string{"listener"}},
	refusals:      {"penstock_refusals_total", counter, "Flows that the daemon itself refused or ended, by reason; docs/causes.md explains each.", []string{"listener", "reason"}},
	acceptErrors:  {"penstock_accept_errors_total", counter, "Accepts that failed.", nil},
	acceptPauses:  {"penstock_accept_pauses_total", counter, "Accepts that failed for want of descriptors or memory, after which the listener rests for a while.", nil},

	flowsOpen:     {"penstock_flows_open", gauge, "Flows that are open; summed by group and member, those that a member has.", ofSeries},
	flowsEnded:    {"penstock_flows_ended_total", counter, "Flows that ended, by cause; docs/causes.md explains each.", append(ofSeries[:4:4], "cause")},
	flowBytes:     {"penstock_flow_bytes_total", counter, "Bytes that the receiver's socket has taken.", append(ofSeries[:4:4], "direction")},
	flowDatagrams: {"penstock_flow_datagrams_total", counter, "Datagrams that the receiver's socket has taken.", append(ofSeries[:4:4], "direction")},
	connectTime:   {"penstock_connect_duration_seconds", histogram, "From a flow's start until its upstream was connected, retries included.", ofTimes},
	firstByteTime: {"penstock_first_byte_duration_seconds", histogram, "From being connected until the upstream's first byte.", ofTimes},
	flowTime:      {"penstock_flow_duration_seconds", histogram, "The life of ended flows.", ofTimes},

	groupMembers:  {"penstock_group_members", gauge, "Members of a group by state.", []string{"group", "state"}},
	groupRetries:  {"penstock_group_retries_total", counter, "Connects that were tried again at another member.", []string{"group"}},
	queueSize:     {"penstock_queue_size", gauge, "Flows that may wait while every member is down or at its cap.", []string{"group"}},
	queueWaiting:  {"penstock_queue_waiting", gauge, "Flows that wait now.", []string{"group"}},
	queueFlows:    {"penstock_queue_flows_total", counter, "Flows that ever waited.", []string{"group"}},
	queueTimeouts: {"penstock_queue_timeouts_total", counter, "Flows that waited in vain.", []string{"group"}},
	queueFull:     {"penstock_queue_full_total", counter, "Flows that were refused because the queue was full.", []string{"group"}},

	lookupGood:     {"penstock_lookup_good", gauge, "1 if the last look-up of the name found members; 0 if not, and the members of the last good one may still be there.", []string{"group", "name"}},
	lookupMembers:  {"penstock_lookup_members", gauge, "Members that the name has.", []string{"group", "name"}},
	lookupFailures: {"penstock_lookup_failures_total", counter, "Look-ups of the name that found nothing, or no resolver.", []string{"group", "name"}},

	memberUp:          {"penstock_member_up", gauge, "1 while the member takes new flows.", ofMember},
	memberWeight:      {"penstock_member_weight", gauge, "The member's weight, 1 to 256.", ofMember},
	memberConnects:    {"penstock_member_connects_total", counter, "Attempts to connect that succeeded.", ofMember},
	memberFailures:    {"penstock_member_connect_failures_total", counter, "Attempts to connect that failed.", ofMember},
	memberConnectTime: {"penstock_member_connect_seconds_total", counter, "What the attempts that succeeded took together; divided by their number it is their mean.", ofMember},

	loopFlows:   {"penstock_loop_flows", gauge, "Flows that are open on the event loop.", []string{"loop"}},
	loopEvents:  {"penstock_loop_events_total", counter, "Events that the loop handled.", []string{"loop"}},
	loopBusy:    {"penstock_loop_busy_seconds_total", counter, "Time that the loop was not asleep; its rate is the share of a CPU.", []string{"loop"}},
	loopWaits:   {"penstock_loop_waits_total", counter, "Calls of epoll_wait.", []string{"loop"}},
	loopWakeups: {"penstock_loop_wakeups_total", counter, "Calls of epoll_wait that slept.", []string{"loop"}},
	loopLongest: {"penstock_loop_longest_turn_seconds", gauge, "The longest turn from one wait to the next of the last 15 to 30 seconds.", []string{"loop"}},

	pathWays:     {"penstock_data_path_ways_total", counter, "Directions of ended flows by the data path that they went, and why not by a faster one (empty: it was the fastest).", []string{"path", "why"}},
	splicedBytes: {"penstock_spliced_bytes_total", counter, "Bytes that never were in user-space memory.", nil},
	droppedBytes: {"penstock_dropped_bytes_total", counter, "Bytes that were read and never delivered.", nil},
	pipesOpen:    {"penstock_pipes_open", gauge, "Pipes for splicing that are open, two descriptors each.", nil},
	pipesLeased:  {"penstock_pipes_leased", gauge, "Pipes that hold bytes of a flow.", nil},
	pipesMax:     {"penstock_pipes_limit", gauge, "The budget of pipes.", nil},
	pipesRefused: {"penstock_pipes_refused_total", counter, "Times that a direction found no pipe, and copied.", nil},

	datagramDrops:  {"penstock_datagrams_dropped_total", counter, "Datagrams that were read and not delivered, by reason.", []string{"reason"}},
	kernelDrops:    {"penstock_datagrams_kernel_dropped_total", counter, "Datagrams that the kernel dropped before they could be read (SO_RXQ_OVFL).", nil},
	gsoRuns:        {"penstock_gso_runs_total", counter, "Messages sent that held several datagrams.", nil},
	gsoFallbacks:   {"penstock_gso_fallbacks_total", counter, "Runs of datagrams that a route refused, and that were sent one by one.", nil},
	groSupers:      {"penstock_gro_messages_total", counter, "Messages received that held several datagrams.", nil},
	icmpErrors:     {"penstock_icmp_errors_total", counter, "ICMP errors that upstreams' sockets told of.", nil},
	restingSockets: {"penstock_datagram_resting_sockets", gauge, "Upstream sockets of ended datagram flows that keep their port for a while, so that late replies reach nobody else.", nil},
	restsCut:       {"penstock_datagram_rests_cut_total", counter, "Resting sockets that were closed before their time, to make room.", nil},
	heldBytes:      {"penstock_held_bytes", gauge, "Bytes of datagrams that wait for full upstream sockets.", nil},

	poolGets: {"penstock_pool_gets_total", counter, "Times that a buffer was asked for.", []string{"pool"}},
	poolNews: {"penstock_pool_news_total", counter, "Times that a buffer had to be made.", []string{"pool"}},
	poolKept: {"penstock_pool_kept", gauge, "Buffers that wait in the pool.", []string{"pool"}},
	poolLive: {"penstock_pool_live", gauge, "Buffers that exist, in the pool or in use.", []string{"pool"}},
	logDrops: {"penstock_log_dropped_total", counter, "Lines that were lost, because there was no room or because they could not be written: of the daemon's log, or of the access log.", []string{"log"}},
}
