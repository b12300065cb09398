package hooks

// useTLS is what a client gets that sends a request in the clear where TLS ends, before it is turned away: a person who
// has typed http for https sees why.
var useTLS = []byte("HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 46\r\nConnection: close\r\n\r\n" +
	"HTTP in the clear on a port for TLS: use https")

// inHTTP reports whether what a client says begins like a request of HTTP/1. No record of TLS does.
func inHTTP(b []byte) bool {
	if len(b) < 5 {
		return false
	}
	switch string(b[:5]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "PATCH", "DELET", "OPTIO", "CONNE":
		return true
	}
	return false
}
