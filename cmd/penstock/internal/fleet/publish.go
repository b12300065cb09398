package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/penstock/penstock/cmd/penstock/internal/etcd"
)

// A State is what is published, at one moment.
type State struct {
	Current Current // without a version: nothing is published
	Canary  *Canary // nil: none
	Problem error   // why KEY/config cannot be read, although it is there

	mod, canaryMod int64 // revisions of the keys; 0: they do not exist
	revision       int64 // of etcd, when this was read
}

// State returns what is published.
func (o *Operator) State(ctx context.Context) (State, error) {
	r, err := o.Client.Do(ctx, etcd.Txn{Then: []etcd.Op{etcd.Get(configKey(o.Key)), etcd.Get(canaryKey(o.Key))}})
	if err != nil {
		return State{}, err
	}
	s := stateOf(r.Answers)
	s.revision = r.Revision
	return s, nil
}

// stateOf reads the answers to Get of both keys.
func stateOf(answers []etcd.Answer) (s State) {
	if kvs := answers[0].KVs; len(kvs) == 1 {
		s.mod = kvs[0].Mod
		s.Current, s.Problem = ParseCurrent(kvs[0].Value)
	}
	if kvs := answers[1].KVs; len(kvs) == 1 {
		s.canaryMod = kvs[0].Mod
		c, err := ParseCanary(kvs[0].Value)
		if err != nil {
			c = Canary{By: "somebody who wrote what cannot be read"}
		}
		s.Canary = &c
	}
	return s
}

// Version returns a version.
func (o *Operator) Version(ctx context.Context, n int64) (Version, error) {
	return readVersion(ctx, o.Client, o.Key, n)
}

// A ConflictError says that something was published meanwhile, or that a canary is out.
type ConflictError struct {
	State State
	By    Version // of the new current version, if that is another one; it may have no text
}

func (e *ConflictError) Error() string {
	switch {
	case e.By.Version != 0:
		return publishedBy(&e.By) + " meanwhile; nothing was published"
	case e.State.Canary != nil:
		c := e.State.Canary
		if c.Version == 0 {
			return c.By + " has a version tried; penstock rollback ends that, and so does --end-canary"
		}
		relays := "1 relay"
		if c.Relays != 1 {
			relays = fmt.Sprint(c.Relays, " relays")
		}
		return fmt.Sprintf("%s tries version %d with %s since %s; wait for the end, or end that with --end-canary", c.By, c.Version, relays, c.Since.Local().Format(time.DateTime))
	case e.State.mod == 0:
		return "the configuration was deleted meanwhile; nothing was published"
	}
	return "somebody has changed the configuration meanwhile; nothing was published"
}

// publishedBy says who published a version, and when.
func publishedBy(v *Version) string {
	text := fmt.Sprintf("%s published version %d at %s", v.By, v.Version, v.At.Local().Format(time.DateTime))
	if v.Message != "" {
		text += " (" + v.Message + ")"
	}
	return text
}

// ErrTooLarge is returned for a configuration that etcd does not take.
var ErrTooLarge = errors.New("the configuration is too large for etcd, which takes requests of 1.5 MiB (--max-request-bytes of its servers)")

// A Draft is a text to be published.
type Draft struct {
	Text    string
	Message string
	// EndCanary ends a canary that is out, instead of refusing to publish.
	EndCanary bool

	again int64 // of a rollback: the earlier version, which has the same text
}

// maxLead is how far a relay may be ahead of what is published: one that reports any number must not use them up.
const maxLead = 1_000_000

// next returns the version that a draft becomes after a state. Its number is above all that there are, and above
// those that relays run, should etcd have been restored from a backup. oldest is the first of the latest versions,
// which are kept.
func (o *Operator) next(ctx context.Context, s *State, d *Draft) (v Version, oldest int64, err error) {
	if err := checkText(d.Text); err != nil {
		return v, 0, err
	}
	n := s.Current.Last
	r, err := o.Client.Do(ctx, etcd.Txn{Then: []etcd.Op{etcd.GetKeys(versionsPrefix(o.Key))}})
	if err != nil {
		return v, 0, err
	}
	var kept []int64
	for _, kv := range r.Answers[0].KVs {
		if number, ok := numberOf(kv.Key, versionsPrefix(o.Key)); ok {
			n = max(n, number)
			kept = append(kept, number)
		}
	}
	kvs, _, err := o.Client.Prefix(ctx, nodesPrefix(o.Key))
	if err != nil {
		return v, 0, err
	}
	for _, kv := range kvs {
		if r, err := ParseReport(kv.Value); err == nil && r.Version-s.Current.Last < maxLead {
			n = max(n, r.Version)
		}
	}
	if n >= maxNumber {
		return v, 0, fmt.Errorf("version %d is the last number; what is below %s must be deleted to begin anew", n, o.Key)
	}
	if len(kept) >= KeptVersions {
		oldest = kept[len(kept)-KeptVersions+1] // with the new one, so many are kept
	}
	return Version{Version: n + 1, Hash: HashOf(d.Text), By: o.By, At: time.Now().UTC(), Message: oneLine(d.Message), Parent: s.Current.Version, Again: d.again, Text: d.Text}, oldest, nil
}

// Publish makes a draft the version that all relays run, if nothing was published since the state was read:
// otherwise the error is a [ConflictError].
func (o *Operator) Publish(ctx context.Context, s State, d Draft, what string) (Version, error) {
	if s.Canary != nil && !d.EndCanary {
		return Version{}, &ConflictError{State: s}
	}
	v, oldest, err := o.next(ctx, &s, &d)
	if err != nil {
		return Version{}, err
	}
	ops := []etcd.Op{
		etcd.Put(versionKey(o.Key, v.Version), encode(&v), 0),
		etcd.Put(configKey(o.Key), encode(&Current{v.Version, v.Hash, v.Version}), 0),
		o.entry(what, v.Version, v.Message),
	}
	if s.Canary != nil {
		ops = append(ops, etcd.Delete(canaryKey(o.Key)), o.entry("end-canary", s.Canary.Version, "for version "+fmt.Sprint(v.Version)))
	}
	return v, o.commit(ctx, &s, &v, append(ops, o.prune(oldest, v.Version)...))
}

// commit makes changes, if nothing has changed since a state was read. v is the version that they make; its number was
// never given before.
func (o *Operator) commit(ctx context.Context, s *State, v *Version, ops []etcd.Op) error {
	number := versionKey(o.Key, v.Version)
	r, err := o.Client.Do(ctx, etcd.Txn{
		If:   []etcd.Compare{etcd.ModIs(configKey(o.Key), s.mod), etcd.ModIs(canaryKey(o.Key), s.canaryMod), etcd.Absent(number)},
		Then: ops,
		Else: []etcd.Op{etcd.Get(configKey(o.Key)), etcd.Get(canaryKey(o.Key))},
	})
	switch {
	case unanswered(err):
		if err := o.settleVersion(ctx, v, err); err != nil {
			return err
		}
	case err != nil && len(v.Text) > largeText:
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	case err != nil:
		return err
	case !r.Succeeded:
		return o.conflict(ctx, s, stateOf(r.Answers))
	}
	sometimesTrimLog(ctx, o.Client, o.Key) // or the next one does it
	return nil
}

// settleVersion finds out whether the changes that make a version were made, although the request got no answer. If
// they were not, they no longer can be.
func (o *Operator) settleVersion(ctx context.Context, v *Version, failed error) error {
	number := versionKey(o.Key, v.Version)
	r, err := o.settle(ctx, etcd.Txn{
		If:   []etcd.Compare{etcd.Absent(number)},
		Then: []etcd.Op{etcd.Put(number, encode(&Version{Version: v.Version, By: v.By, At: v.At, Void: true}), 0)},
		Else: []etcd.Op{etcd.Get(number)},
	})
	switch {
	case err != nil:
		return &unknownError{"the version was published", "penstock history", failed}
	case !r.Succeeded && len(r.Answers[0].KVs) == 1 && string(r.Answers[0].KVs[0].Value) == string(encode(v)):
		return nil
	}
	return fmt.Errorf("nothing was published: %w", failed)
}

// conflict returns the error that tells who was first.
func (o *Operator) conflict(ctx context.Context, was *State, now State) error {
	e := &ConflictError{State: now}
	if n := now.Current.Version; n != was.Current.Version && n != 0 {
		v, err := o.Version(ctx, n)
		if err != nil {
			v = Version{Version: n, By: "somebody"}
		}
		e.By = v
	}
	return e
}

// largeText is more than a text may have if it is to blame for a refusal.
const largeText = 1 << 20

// entry returns the operation that adds to the log.
func (o *Operator) entry(what string, version int64, text string) etcd.Op {
	return o.entryOf(what, fmt.Sprintf("version %d", version), text)
}

func (o *Operator) entryOf(what, to, text string) etcd.Op {
	e := Entry{At: time.Now(), By: shorten(o.By), What: what, To: to, Text: shorten(text)}
	return etcd.Put(logKey(o.Key, e.At), encode(&e), 0)
}

// prune returns the operations that remove versions before the oldest that is kept, but not the current one.
func (o *Operator) prune(oldest, current int64) []etcd.Op {
	end := oldest
	if end <= 1 {
		return nil
	}
	ops := []etcd.Op{etcd.DeleteRange(versionKey(o.Key, 0), versionKey(o.Key, min(end, current)))}
	if current+1 < end { // those in between were tried and taken back
		ops = append(ops, etcd.DeleteRange(versionKey(o.Key, current+1), versionKey(o.Key, end)))
	}
	return ops
}

// ErrNothing is returned when there is no version to go back from.
var ErrNothing = errors.New("nothing has been published")

// ErrNoChange is returned when what is to be published is current already.
var ErrNoChange = errors.New("this text is current already")

// Rollback publishes the text of an earlier version again, as a new version; to is 0 for the one before the
// current one. If a canary is out and to is 0, it only ends that, and the version is the current one.
func (o *Operator) Rollback(ctx context.Context, to int64, message string) (v, old Version, err error) {
	s, err := o.State(ctx)
	if err != nil {
		return v, old, err
	}
	if s.Problem != nil && to == 0 {
		return v, old, fmt.Errorf("%s cannot be read, so that it is not known what was before: %w; allowed: --to", configKey(o.Key), s.Problem)
	}
	if s.Canary != nil && to == 0 {
		return o.endCanary(ctx, &s, message)
	}
	if to == 0 && s.Current.Version == 0 {
		return v, old, ErrNothing
	}
	if to == 0 {
		now, err := o.Version(ctx, s.Current.Version)
		if err != nil {
			return v, old, err
		}
		if now.Again != 0 { // the version before is the one that somebody has just gone back from
			return v, old, fmt.Errorf("the current version %d is a rollback already, to version %d, by %s at %s; allowed: --to, with one that penstock history lists", now.Version, now.Again, now.By, now.At.Local().Format(time.DateTime))
		}
		if to = now.Parent; to == 0 {
			return v, old, fmt.Errorf("there is no version before version %d; allowed: --to, with one that penstock history lists", now.Version)
		}
	}
	if old, err = o.Version(ctx, to); err != nil {
		return v, old, err
	}
	if old.Hash == s.Current.Hash && s.Canary == nil {
		return v, old, ErrNoChange
	}
	about := fmt.Sprintf("rollback to version %d", to)
	if message != "" {
		about += ": " + message
	}
	v, err = o.Publish(ctx, s, Draft{Text: old.Text, Message: about, EndCanary: true, again: to}, "rollback")
	return v, old, err
}

// endCanary ends somebody's canary.
func (o *Operator) endCanary(ctx context.Context, s *State, message string) (v, old Version, err error) {
	t := etcd.Txn{
		If:   []etcd.Compare{etcd.ModIs(canaryKey(o.Key), s.canaryMod)},
		Then: []etcd.Op{etcd.Delete(canaryKey(o.Key)), o.entry("end-canary", s.Canary.Version, message)},
		Else: []etcd.Op{etcd.Get(configKey(o.Key)), etcd.Get(canaryKey(o.Key))},
	}
	r, err := o.Client.Do(ctx, t)
	lost := unanswered(err)
	if lost {
		failed := err
		if r, err = o.settle(ctx, t); err != nil {
			err = &unknownError{"the trial was ended", "penstock history", failed}
		}
	}
	if err == nil && !r.Succeeded {
		if now := stateOf(r.Answers); !lost || now.mod != s.mod || now.Canary != nil {
			err = o.conflict(ctx, s, now)
		}
	}
	if err != nil {
		return v, old, err
	}
	v, err = o.Version(ctx, s.Current.Version)
	return v, Version{Version: s.Canary.Version}, err
}

// History returns the latest versions, the latest first, at most a number of them. Those that are no longer
// there, or cannot be read, are left out.
func (o *Operator) History(ctx context.Context, most int) ([]Version, State, error) {
	r, err := o.Client.Do(ctx, etcd.Txn{Then: []etcd.Op{etcd.Get(configKey(o.Key)), etcd.Get(canaryKey(o.Key)), etcd.GetKeys(versionsPrefix(o.Key))}})
	if err != nil {
		return nil, State{}, err
	}
	var list []Version
	for _, kv := range slices.Backward(r.Answers[2].KVs) {
		if len(list) == most {
			break
		}
		n, ok := numberOf(kv.Key, versionsPrefix(o.Key))
		if !ok {
			continue
		}
		v, err := o.Version(ctx, n)
		if ctx.Err() != nil {
			return nil, State{}, ctx.Err()
		}
		if err == nil {
			list = append(list, v)
		}
	}
	return list, stateOf(r.Answers[:2]), nil
}
