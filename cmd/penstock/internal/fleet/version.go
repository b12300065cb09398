package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A Current says which version of the configuration relays run. It is at KEY/config.
type Current struct {
	Version int64  `json:"version"`
	Hash    string `json:"hash"` // of the text
	// Last is the highest number that was ever given to a version: that of a canary which was taken back, too.
	Last int64 `json:"last"`
}

// A Canary says that some relays run another version for a while. It is at KEY/config/canary, with the lease of
// whoever tries the version: if that one dies, the canary ends.
type Canary struct {
	Version int64     `json:"version"`
	Hash    string    `json:"hash"`
	Below   string    `json:"below"` // a relay is one of the canaries if its score for the version is not above this: 16 hex digits
	Share   float64   `json:"share"` // of the relays that was asked for
	Relays  int       `json:"relays"`
	By      string    `json:"by"`
	Since   time.Time `json:"since"`
}

// A Version is a text of the configuration. It is at KEY/versions/NUMBER and never changes. Who publishes and gets no
// answer takes the number away from the text, which can then no longer be published: Void.
type Version struct {
	Version int64     `json:"version"`
	Hash    string    `json:"hash"` // SHA-256 of the text, in hex
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Message string    `json:"message,omitempty"`
	Parent  int64     `json:"parent,omitempty"` // the version that was current before
	Again   int64     `json:"again,omitempty"`  // the version whose text a rollback has published again
	Text    string    `json:"text"`
	Void    bool      `json:"void,omitempty"`
	Trial   bool      `json:"-"` // it runs because this relay is a canary
}

// The bounds of versions. A request to etcd has at most 1.5 MiB, unless the server is configured otherwise.
const (
	KeptVersions = 100
	maxCurrent   = 4 << 10
	maxVersion   = 8 << 20
	maxMessage   = 1000
	maxNumber    = 9_999_999_999 // of ten digits
)

func configKey(key string) string      { return key + "/config" }
func canaryKey(key string) string      { return key + "/config/canary" }
func versionsPrefix(key string) string { return key + "/versions/" }
func versionKey(key string, n int64) string {
	return fmt.Sprintf("%s%010d", versionsPrefix(key), n)
}

// HashOf returns the hash of a text, as versions have it.
func HashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func validHash(s string) bool { return len(s) == 2*sha256.Size && !notHex(s) }

func validNumber(n int64) bool { return n > 0 && n <= maxNumber }

// ParseCurrent reads what is at KEY/config.
func ParseCurrent(text []byte) (Current, error) {
	var c Current
	if err := decode(text, maxCurrent, &c); err != nil {
		return Current{}, err
	}
	if !validNumber(c.Version) || !validNumber(c.Last) || c.Version > c.Last || !validHash(c.Hash) {
		return Current{}, fmt.Errorf("version %d of %d with the hash %.80q", c.Version, c.Last, c.Hash)
	}
	return c, nil
}

// ParseCanary reads what is at KEY/config/canary.
func ParseCanary(text []byte) (Canary, error) {
	var c Canary
	if err := decode(text, maxCurrent, &c); err != nil {
		return Canary{}, err
	}
	if !validNumber(c.Version) || !validHash(c.Hash) || len(c.Below) != 16 || notHex(c.Below) {
		return Canary{}, fmt.Errorf("version %d with the hash %.80q for scores below %.80q", c.Version, c.Hash, c.Below)
	}
	c.By = shorten(c.By)
	return c, nil
}

// ParseVersion reads what is at KEY/versions/NUMBER. The text is the one that the hash is of.
func ParseVersion(text []byte) (Version, error) {
	var v Version
	if err := decode(text, maxVersion, &v); err != nil {
		return Version{}, err
	}
	switch {
	case v.Void:
		return Version{}, fmt.Errorf("version %d was never published: etcd did not answer in time", v.Version)
	case !validNumber(v.Version) || v.Parent != 0 && !validNumber(v.Parent):
		return Version{}, fmt.Errorf("version %d after %d", v.Version, v.Parent)
	case v.Hash != HashOf(v.Text):
		return Version{}, fmt.Errorf("the text of version %d is not the one that was published: its hash is another one", v.Version)
	}
	v.By, v.Message = shorten(v.By), oneLine(v.Message)
	return v, nil
}

func decode(text []byte, most int, v any) error {
	if len(text) > most {
		return fmt.Errorf("a value of %d bytes; allowed: %d", len(text), most)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("the value cannot be read: %w", err)
	}
	return nil
}

// encode returns JSON in which <, > and & stay as they are, for whoever reads it with etcdctl.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // strings, numbers and times
		panic(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// oneLine returns a message on one line, not too long.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	for i := range s {
		if i > maxMessage {
			return s[:i] + "..."
		}
	}
	return s
}

// checkText returns an error if a text cannot be published.
func checkText(text string) error {
	if !utf8.ValidString(text) {
		return errors.New("the configuration is not valid UTF-8")
	}
	return nil
}

// numberOf returns the number of a version from its key.
func numberOf(key, prefix string) (int64, bool) {
	name, ok := below(key, prefix)
	if !ok || len(name) != 10 {
		return 0, false
	}
	n, err := strconv.ParseInt(name, 10, 64)
	return n, err == nil && validNumber(n)
}
