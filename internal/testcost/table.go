package testcost

// What is counted of an exchange. Between two messages the loop has nothing to do, so each costs a wake-up.
const (
	calls   = "system calls"
	data    = "data calls" // those that have moved bytes or datagrams
	wakeups = "wake-ups"
	size    = "bytes of an idle flow"
)

// Reasons that several rows share.
const (
	idle = "each message by itself: a wake-up, one receive, one send, and a wait that finds nothing before the loop sleeps"
	pipe = "as for a small message, but into a pipe and out of it, and a splice that finds the source empty: splice(2) does not say so otherwise"
	one  = "one receive and one send per message"
	woke = "one per message"
)

// table is what everything costs today.
var table = []row{
	{"TCP round trip, 64 B", calls, 8, 0, idle},
	{"TCP round trip, 64 B", data, 4, 0, one},
	{"TCP round trip, 64 B", wakeups, 2, 0, woke},
	{"TCP round trip, 16 KiB", calls, 8, 0, idle},
	{"TCP round trip, 16 KiB", data, 4, 0, one},
	{"TCP round trip, 16 KiB", wakeups, 2, 0, woke},
	{"TCP round trip, 64 KiB", calls, 10, 0, pipe},
	{"TCP round trip, 64 KiB", data, 4, 0, one},
	{"TCP round trip, 64 KiB", wakeups, 2, 0, woke},
	{"TCP round trip, 256 KiB", calls, 10, 0, pipe},
	{"TCP round trip, 256 KiB", data, 4, 0, one},
	{"TCP round trip, 256 KiB", wakeups, 2, 0, woke},
	{"TCP bulk, 2 MiB that arrive 256 KiB at a time", calls, 40, 0, pipe + "; 19,073 per GB"},
	{"TCP bulk, 2 MiB that arrive 256 KiB at a time", data, 16, 0, "256 KiB in one call"},
	{"TCP bulk, 2 MiB that arrive 256 KiB at a time", wakeups, 8, 0, "one per arrival"},
	{"TCP connection: connect, 64 B and back, close", calls, 26, 0,
		"two accepts (the second finds nobody), a socket, its option, connect, two registrations, two messages and two ends with their waits, a shutdown, two closes"},
	{"TCP connection: connect, 64 B and back, close", data, 4, 0, one},
	{"TCP connection: connect, 64 B and back, close", wakeups, 6, 0, "the client, its first message with the upstream's answer to connect, the echo, two ends"},

	{"UDP round trip, 200 B", calls, 8, 0, idle},
	{"UDP round trip, 200 B", data, 4, 0, one},
	{"UDP round trip, 200 B", wakeups, 2, 0, woke},
	{"UDP round trip, 32 x 1200 B", calls, 11, 0, "a batch each way, of which a port receives less at a time than 32 single datagrams"},
	{"UDP round trip, 32 x 1200 B", data, 6, 0, "as above"},
	{"UDP round trip, 32 x 1200 B", wakeups, 3, 0, "as above"},
	{"UDP round trip, GSO 32 x 1200 B", calls, 8, 0, "32 datagrams cost what one does: they arrive as one, and leave as one"},
	{"UDP round trip, GSO 32 x 1200 B", data, 4, 0, one},
	{"UDP round trip, GSO 32 x 1200 B", wakeups, 2, 0, woke},
	{"UDP flow of one reply, 200 B", calls, 16, 0,
		"a round trip, a socket, its connect, four options, and that it is watched for replies, and no longer when it rests"},
	{"UDP flow of one reply, 200 B", data, 4, 0, one},
	{"UDP flow of one reply, 200 B", wakeups, 2, 0, woke},

	{"stream flow", size, 424, 0, "all that a flow needs lies in its slot; 64 of them fill a size class of the runtime"},
	{"datagram flow", size, 512, 0, "as above, with the names of both ends, and what each direction sends as a run"},
	{"64 slots", size, 272, 0, "the generations of 64 slots, and whose they are"},
}
