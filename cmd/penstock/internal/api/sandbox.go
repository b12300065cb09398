package api

// Sandbox says what the process that relays has given up.
type Sandbox struct {
	Mode   string         `json:"mode"` // on or log
	Layers []SandboxLayer `json:"layers"`
}

// SandboxLayer is one of the layers of a sandbox, which hold independently of each other.
type SandboxLayer struct {
	Name   string `json:"name"` // no-new-privs, user, capabilities, landlock-files, landlock-network, landlock-scope or seccomp
	Held   bool   `json:"held"`
	Wanted bool   `json:"wanted"` // the configuration asks for it
	// Why says why it is not held; and if it is, what it leaves open.
	Why string `json:"why,omitempty"`
}
