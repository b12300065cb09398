package sandboxneeds

// A change is what changes a running process: a request to the admin API, an order of a fleet, or a signal.
type change struct {
	by string
	// row is whose needs it may bring; everyRow: those of a whole configuration; empty: none.
	row string
}

const (
	everyRow = "any key"
	members  = "members at run time"
)

// changes are all of them. What they bring is checked, and refused or left to another worker, as that of a reload.
var changes = []change{
	{"POST /v1/reload", everyRow},
	{"POST /v1/config/diff", ""}, // which only compares
	{"POST /v1/upgrade", ""},     // the keeper opens the binary
	{"POST /v1/groups/{group}/members", members},
	{"PATCH /v1/groups/{group}/members/{member}", members}, // to an address
	{"DELETE /v1/groups/{group}/members/{member}", ""},
	{"PATCH /v1/listeners/{listener}/routes/{route}", ""}, // only weights
	{"DELETE /v1/flows", ""},
	{"POST /v1/bans", ""},
	{"DELETE /v1/bans/{network}", ""},
	{"DELETE /v1/flows/{id}", ""},
	{"POST /v1/captures", ""}, // the packets are taken by the command, which is another process
	{"PUT /v1/log", ""},
	{"POST /v1/drain", ""},
	{"order reload", everyRow},
	{"order flows", ""},
	{"order report", ""},
	{"order drain", "fleet.etcd"}, // its end binds listeners again
	{"SIGHUP", everyRow},
	{"SIGUSR1", "access-log.to"},
	{"SIGUSR2", ""},
	{"a changed file", everyRow},      // reload.watch
	{"a published version", everyRow}, // of a configuration from a registry
}

// Changes returns the names of what changes a running process, as this package declares it: METHOD PATH of the admin API, "order KIND" of a
// fleet, signals, and the rest.
func Changes() (names []string) {
	for _, c := range changes {
		names = append(names, c.by)
	}
	return names
}
