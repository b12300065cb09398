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
	lastReload
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
	queueFlows
	queuedFlows
	queueTimeouts
	queueFull
	lookupSuccess
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

	flowDirections
	splicedBytes
	droppedBytes
	pipesOpen
	pipesLeased
	pipesLimit
	pipesRefused

	datagramsDropped
	datagramsLost
	gsoMessages
	gsoFallbacks
	groMessages
	icmpErrors
	restingSockets
	restingClosedEarly
	datagramHeldBytes

	poolGets
	poolAllocations
	poolIdle
	poolBuffers
	logLinesDropped

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
	buildInfo:  {"penstock_build_info", gauge, "Always 1, labeled with the versions of the daemon and of Go.", []string{"version", "go"}},
	ready:      {"penstock_ready", gauge, "1 while the daemon takes new flows; 0 while it starts or drains.", nil},
	configInfo: {"penstock_config_info", gauge, "Always 1, labeled with the SHA-256 of the running configuration.", []string{"hash"}},
	reloads:    {"penstock_config_reloads_total", counter, "Reloads, by result (success or failure).", []string{"result"}},
	lastReload: {"penstock_config_last_reload_successful", gauge, "1 if the last reload succeeded, or if there was none; 0 if it failed and changed nothing.", nil},
	reloadTime: {"penstock_config_loaded_timestamp_seconds", gauge, "When the running configuration was loaded, in seconds since 1970.", nil},

	listenerOpen:  {"penstock_listener_open", gauge, "1 while the listener accepts clients; 0 while it pauses or drains.", []string{"listener"}},
	listenerFlows: {"penstock_listener_flows_total", counter, "Clients that the listener accepted, including those that were then refused.", []string{"listener"}},
	refusals:      {"penstock_refusals_total", counter, "Flows that the daemon refused or ended, by reason; see docs/causes.md.", []string{"listener", "reason"}},
	acceptErrors:  {"penstock_accept_errors_total", counter, "Failed accepts.", nil},
	acceptPauses:  {"penstock_accept_pauses_total", counter, "Pauses of a listener after an accept failed for want of descriptors or memory.", nil},

	flowsOpen:     {"penstock_flows_open", gauge, "Open flows.", ofSeries},
	flowsEnded:    {"penstock_flows_ended_total", counter, "Ended flows, by cause; see docs/causes.md.", append(ofSeries[:4:4], "cause")},
	flowBytes:     {"penstock_flow_bytes_total", counter, "Bytes that the receiving socket has taken, by direction.", append(ofSeries[:4:4], "direction")},
	flowDatagrams: {"penstock_flow_datagrams_total", counter, "Datagrams that the receiving socket has taken, by direction.", append(ofSeries[:4:4], "direction")},
	connectTime:   {"penstock_connect_duration_seconds", histogram, "Time from the start of a flow until its upstream was connected, including retries but not the time in a queue.", ofTimes},
	firstByteTime: {"penstock_first_byte_duration_seconds", histogram, "Time from the connect until the upstream's first byte.", ofTimes},
	flowTime:      {"penstock_flow_duration_seconds", histogram, "Duration of ended flows.", ofTimes},

	groupMembers:  {"penstock_group_members", gauge, "Members of the group, by state.", []string{"group", "state"}},
	groupRetries:  {"penstock_group_retries_total", counter, "Connects that were retried at another member.", []string{"group"}},
	queueSize:     {"penstock_queue_size", gauge, "Flows that the queue of the group can hold.", []string{"group"}},
	queueFlows:    {"penstock_queue_flows", gauge, "Flows in the queue now.", []string{"group"}},
	queuedFlows:   {"penstock_queued_flows_total", counter, "Flows that entered the queue.", []string{"group"}},
	queueTimeouts: {"penstock_queue_timeouts_total", counter, "Flows that were refused because they had queued for too long.", []string{"group"}},
	queueFull:     {"penstock_queue_full_total", counter, "Flows that were refused because the queue was full.", []string{"group"}},

	lookupSuccess:  {"penstock_lookup_success", gauge, "1 if the last lookup of the name found addresses; 0 if it failed, while the members of the last good one may still be in use.", []string{"group", "name"}},
	lookupMembers:  {"penstock_lookup_members", gauge, "Members that the name resolves to.", []string{"group", "name"}},
	lookupFailures: {"penstock_lookup_failures_total", counter, "Failed lookups of the name.", []string{"group", "name"}},

	memberUp:          {"penstock_member_up", gauge, "1 while the member takes new flows.", ofMember},
	memberWeight:      {"penstock_member_weight", gauge, "Weight of the member, 1 to 256.", ofMember},
	memberConnects:    {"penstock_member_connects_total", counter, "Successful connects to the member.", ofMember},
	memberFailures:    {"penstock_member_connect_failures_total", counter, "Failed connects to the member.", ofMember},
	memberConnectTime: {"penstock_member_connect_seconds_total", counter, "Total time of the successful connects; divided by their number, the mean.", ofMember},

	loopFlows:   {"penstock_loop_flows", gauge, "Open flows of the event loop.", []string{"loop"}},
	loopEvents:  {"penstock_loop_events_total", counter, "Events that the loop handled.", []string{"loop"}},
	loopBusy:    {"penstock_loop_busy_seconds_total", counter, "Time that the loop was not waiting; its rate is the used share of a CPU.", []string{"loop"}},
	loopWaits:   {"penstock_loop_waits_total", counter, "Calls of epoll_wait.", []string{"loop"}},
	loopWakeups: {"penstock_loop_wakeups_total", counter, "Calls of epoll_wait that had to sleep.", []string{"loop"}},
	loopLongest: {"penstock_loop_longest_turn_seconds", gauge, "Longest turn of the loop, from one wait to the next, in the last 15 to 30 seconds.", []string{"loop"}},

	flowDirections: {"penstock_flow_directions_total", counter, "Directions of ended flows, by data path, and by the reason why a faster path was not taken (empty: the fastest path was).", []string{"path", "why"}},
	splicedBytes:   {"penstock_spliced_bytes_total", counter, "Bytes that were moved inside the kernel, without a copy in user space.", nil},
	droppedBytes:   {"penstock_dropped_bytes_total", counter, "Bytes that were read but not delivered.", nil},
	pipesOpen:      {"penstock_pipes_open", gauge, "Open pipes for splicing, two descriptors each.", nil},
	pipesLeased:    {"penstock_pipes_leased", gauge, "Pipes in use by a flow.", nil},
	pipesLimit:     {"penstock_pipes_limit", gauge, "Pipes that may be open at once.", nil},
	pipesRefused:   {"penstock_pipes_refused_total", counter, "Times that no pipe was left, so that a direction copied instead.", nil},

	datagramsDropped:   {"penstock_datagrams_dropped_total", counter, "Datagrams that were read but not delivered, by reason.", []string{"reason"}},
	datagramsLost:      {"penstock_datagrams_lost_total", counter, "Datagrams that the kernel dropped before they could be read (SO_RXQ_OVFL).", nil},
	gsoMessages:        {"penstock_gso_messages_total", counter, "Messages sent that carried several datagrams (GSO).", nil},
	gsoFallbacks:       {"penstock_gso_fallbacks_total", counter, "Messages of several datagrams that could not be sent as one, and were sent datagram by datagram.", nil},
	groMessages:        {"penstock_gro_messages_total", counter, "Messages received that carried several datagrams (GRO).", nil},
	icmpErrors:         {"penstock_icmp_errors_total", counter, "ICMP errors received on upstream sockets.", nil},
	restingSockets:     {"penstock_datagram_resting_sockets", gauge, "Upstream sockets of ended datagram flows that keep their port for a while, so that late replies reach no other client.", nil},
	restingClosedEarly: {"penstock_datagram_resting_sockets_closed_early_total", counter, "Resting sockets that were closed early to make room.", nil},
	datagramHeldBytes:  {"penstock_datagram_held_bytes", gauge, "Bytes of datagrams held while upstream sockets are full.", nil},

	poolGets:        {"penstock_pool_gets_total", counter, "Buffers taken from the pool.", []string{"pool"}},
	poolAllocations: {"penstock_pool_allocations_total", counter, "Buffers that had to be allocated.", []string{"pool"}},
	poolIdle:        {"penstock_pool_idle_buffers", gauge, "Unused buffers in the pool.", []string{"pool"}},
	poolBuffers:     {"penstock_pool_buffers", gauge, "Buffers of the pool, used and unused.", []string{"pool"}},
	logLinesDropped: {"penstock_log_lines_dropped_total", counter, "Lines that were not written, because the log was too slow or writing failed, by log (log: the log of the daemon; access: the access log).", []string{"log"}},
}
