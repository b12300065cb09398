package spec

import (
	"slices"
	"time"
)

// ServerTLS configures TLS that is terminated at a listener.
type ServerTLS struct {
	Certificates []Certificate // the first is used for a client whose server name none has
	// RefuseUnknown refuses clients that send a server name that no certificate has.
	RefuseUnknown bool
	MinVersion    uint16 // as in crypto/tls
	ALPN          []string
	Tickets       Tickets
	Clients       *ClientCertificates // nil: clients are not asked for certificates
	Handshake     time.Duration       // maximum time of a handshake
	Kernel        bool                // connections are given to the kernel, where it has TLS, when their flows are settled
}

// Agree returns the protocol that ALPN chooses for a client that offers these: the listener's first that the client
// has, as in crypto/tls; empty: none. ok is false if the client is refused because it has none of the listener's.
func (t *ServerTLS) Agree(offered []string) (protocol string, ok bool) {
	if len(t.ALPN) == 0 || len(offered) == 0 {
		return "", true
	}
	for _, protocol := range t.ALPN {
		if slices.Contains(offered, protocol) {
			return protocol, true
		}
	}
	// crypto/tls takes clients that know only HTTP/1.1 as if they had offered nothing.
	return "", slices.Contains(t.ALPN, "h2") && slices.Contains(offered, "http/1.1")
}

// PostgreSQL is the protocol of StartTLS: the client sends SSLRequest, and TLS begins after an S.
const PostgreSQL = "postgresql"

// StartTLS configures a listener whose clients ask for TLS before it begins; zero: TLS begins at once.
type StartTLS struct {
	Protocol string
	Clear    string // what happens to a client without TLS: refuse; cancel (only its requests to cancel pass); allow
}

// A Certificate names files with a certificate and its key, or a folder of them. Paths are absolute.
type Certificate struct {
	Chain  string // PEM, the leaf first
	Key    string // PEM; empty: it is in the file of the chain
	OCSP   string // a response to staple, in DER; empty: none
	Folder string // instead of the others
}

// Tickets configures the tickets by which clients resume.
type Tickets struct {
	Off  bool
	Keys string // a file of keys that several relays share; empty: the relay makes its own
}

// ClientCertificates configures the verification of clients by their certificates.
type ClientCertificates struct {
	CA       string // a file with the certificates that those of clients must be signed by
	CRL      string // a file with lists of revoked certificates; empty: none
	Optional bool   // a client may have none
}

// Files returns the files and folders that a configuration of TLS names.
func (t *ServerTLS) Files() (files, folders []string) {
	add := func(path string) {
		if path != "" {
			files = append(files, path)
		}
	}
	for _, c := range t.Certificates {
		if c.Folder != "" {
			folders = append(folders, c.Folder)
		}
		add(c.Chain)
		add(c.Key)
		add(c.OCSP)
	}
	add(t.Tickets.Keys)
	if t.Clients != nil {
		add(t.Clients.CA)
		add(t.Clients.CRL)
	}
	return files, folders
}
