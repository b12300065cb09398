package keeper

import (
	"syscall"
	"time"
)

// An upgrade, and a restart, which is an upgrade to the same binary:
//
//	         standby prepared      old worker gone       ready          Config.Healthy
//	Checking ---------------> HandingOver -------> Starting ---> Proving -------> Done
//	   |  \ dry run: Checked                           |             |
//	   | standby gone                                  | new one died, or too late
//	   v                                               v             v
//	Refused                                        RolledBack: the binary before is started again

// beginUpgrade starts a worker from the binary at a path beside the active one.
func (m *machine) beginUpgrade(asker int, token uint64, path string, dry, restart bool, now time.Time) {
	refuse := func(why string) {
		u := Upgrade{State: Refused, Binary: path, DryRun: dry, Restart: restart, Reason: why}
		p := m.peer(asker)
		if p == nil { // a worker that asks is told, and must not be able to fill the log
			m.cfg.Log(Event{Kind: UpgradeStep, Upgrade: u, Items: m.table.len()})
		} else {
			p.send(m, appendControl(nil, kindUpgraded, 0, append([]uint64{token}, u.words()...), u.texts()...))
		}
	}
	switch {
	case m.stopping:
		refuse("the keeper stops")
		return
	case m.standby != nil || !m.upgrade.Over() && !m.restarted():
		refuse("another upgrade is under way")
		return
	case !m.mayHandOver():
		refuse("there is no worker that could hand over")
		return
	}
	b, reason := m.active.binary, Restart
	if !restart {
		var err error
		if b, err = m.port.open(path); err != nil {
			refuse(err.Error())
			return
		}
		if p := m.peer(asker); p != nil && path != "" && m.cfg.CheckBinary != nil {
			if err := m.cfg.CheckBinary(p.policy, b.path, b.fd); err != nil {
				m.port.release(b)
				refuse(err.Error())
				return
			}
		}
		m.opened = append(m.opened, b)
		reason = Upgraded
	}
	p, err := m.startPeer(b, reason, !restart, now)
	if err != nil && !restart {
		m.releaseUnused()
		refuse(err.Error())
		return
	}
	if m.restarted() {
		m.step(Done, "")
	}
	m.asker, m.token = asker, token
	m.upgrade = Upgrade{ID: m.upgrade.ID + 1, Binary: b.path, DryRun: dry, Restart: restart}
	if err != nil { // who waits for a restart learns of it by the number
		m.step(Refused, err.Error())
		return
	}
	m.standby, m.from, m.to = p, m.active.binary, b
	m.step(Checking, "")
}

// mayHandOver reports whether there is a worker that can be asked to hand over.
func (m *machine) mayHandOver() bool {
	return m.active != nil && m.active.ready && !m.active.exiting && m.active.killed == ""
}

// restarted reports whether a restart is on trial. There is no other binary to go back to, and what comes next
// need not wait for the end of the trial.
func (m *machine) restarted() bool { return m.upgrade.State == Proving && m.upgrade.Restart }

// restartPossible reports whether a restart, or an upgrade, that is due can begin.
func (m *machine) restartPossible() bool {
	p := m.active
	return (m.restartDue || m.upgradeDue) && !m.stopping && !m.replacing && m.standby == nil && (m.upgrade.Over() || m.restarted()) &&
		p != nil && p.ready && !p.lied && !p.exiting && p.killed == ""
}

// beginRestart begins a restart that is due, unless it has to wait for the end of an upgrade. It must not be
// forgotten: the worker has told somebody that it will happen. An upgrade that is due is one by signal, which has met a restart.
func (m *machine) beginRestart(now time.Time) {
	switch {
	case !m.restartPossible():
	case m.upgradeDue:
		m.upgradeDue = false
		m.beginUpgrade(0, 0, "", false, false, now)
	default:
		m.restartDue = false
		m.beginUpgrade(0, 0, "", false, true, now)
	}
}

// step brings the upgrade to another state, and tells who wants to know.
func (m *machine) step(s State, why string) {
	u := &m.upgrade
	u.State = s
	if why != "" {
		u.Reason = why
	}
	m.cfg.Log(Event{Kind: UpgradeStep, Upgrade: *u, Items: m.table.len()})
	m.tellUpgrade()
	if u.Over() {
		m.from, m.to = nil, nil
	}
}

func (m *machine) tellUpgrade() {
	if p := m.active; p != nil && p.hello {
		p.send(m, appendControl(nil, kindUpgraded, 0, append(m.upgradeWords(p), m.features(), wordOf(m.executing)), m.upgradeTexts()...))
	}
}

func (m *machine) upgradeWords(p *peer) []uint64 {
	token := uint64(0)
	if p.id == m.asker {
		token = m.token
	}
	return append([]uint64{token}, m.upgrade.words()...)
}

func (m *machine) upgradeTexts() []string { return m.upgrade.texts() }

func (u *Upgrade) words() []uint64 {
	return []uint64{u.ID, uint64(u.State), wordOf(u.DryRun), wordOf(u.Restart)}
}

func (u *Upgrade) texts() []string { return []string{u.Binary, u.Info, u.Reason, u.Keeper} }

// standbyPrepared goes on with the upgrade: a dry run is over.
func (m *machine) standbyPrepared(now time.Time) {
	if m.upgrade.DryRun {
		m.kill(m.standby, "dry run")
		return
	}
	p := m.active
	if p == nil || p.killed != "" || p.exiting || m.standby.killed != "" { // it is about to be gone
		return
	}
	m.step(HandingOver, "")
	p.asked = true
	p.aliveBy = time.Time{}
	p.endBy, p.endWhy = now.Add(m.cfg.HandOverTimeout), "not handed over in time"
	p.send(m, appendHeader(nil, kindHandOver, 0))
}

// onStaying goes on with a worker that was asked to hand over and cannot.
func (m *machine) onStaying(p *peer, why string, now time.Time) {
	switch {
	case !p.asked || p.handedOver:
		m.lie(p, "stays unasked")
		return
	case p.killed != "" || p.exiting:
		return
	}
	p.asked = false
	m.signalPending(p)
	p.endBy, p.endWhy = time.Time{}, ""
	m.setAlive(p, now)
	why = "the worker cannot hand over: " + why
	m.step(Refused, why)
	if m.standby != nil {
		m.kill(m.standby, why)
	}
}

// onExiting goes on with a worker that was asked to hand over and was asked to end before, which comes first.
func (m *machine) onExiting(p *peer, now time.Time) {
	if !p.asked || p.handedOver || p.killed != "" {
		return
	}
	p.asked = false
	p.endBy, p.endWhy = time.Time{}, ""
	m.setAlive(p, now)
	const why = "the worker ends"
	m.step(Refused, why)
	if m.standby != nil {
		m.kill(m.standby, why)
	}
}

// giveEarly begins to give everything to the worker on standby: the active one has nothing more to say.
func (m *machine) giveEarly(now time.Time) {
	if p := m.standby; p != nil && p.prepared && p.killed == "" && !p.hand.full {
		p.hand = handOut{on: true, full: true, window: firstWindow, unanswered: p.hand.unanswered, flying: p.hand.flying}
		p.send(m, appendHeader(nil, kindBegin, 0))
		m.pump(p, now)
	}
}

// takeOver is called when the worker that was asked to hand over has gone.
func (m *machine) takeOver(now time.Time) {
	p := m.standby
	if p == nil || p.killed != "" {
		// The next worker is told about the one that failed: the one before it has ended as it was asked to.
		m.died = m.failed
		if p != nil {
			m.died = Death{PID: p.pid, Signal: int(syscall.SIGKILL), Why: p.killed}
		}
		m.rollBack("the new worker ended before it could begin: "+m.died.String(), now)
		return
	}
	m.giveEarly(now)
	m.standby = nil
	m.setActive(p)
	m.current = p.binary
	m.fellBack = false
	p.startBy = now.Add(m.cfg.ReadyTimeout)
	m.step(Starting, "")
	m.tellLingering()
	m.tryGo(p, now)
}

// standbyGone is called when the worker on standby has gone. wrote is what it wrote before it connected, if it has not.
func (m *machine) standbyGone(p *peer, d Death, wrote string, now time.Time) {
	m.ended(p, d)
	switch {
	case m.upgrade.State != Checking:
		// HandingOver: the active worker has begun to end; takeOver finds that nobody is there. Refused: it stays.
	case m.upgrade.DryRun && p.prepared && d.Why == "dry run":
		m.step(Checked, "")
	case p.again && m.mayHandOver() && !m.stopping:
		next, err := m.startPeer(p.binary, p.reason, false, now)
		if err != nil {
			m.step(Refused, err.Error())
			return
		}
		m.standby = next
	default:
		why := "the new worker ended: " + d.String()
		if !p.hello && d.Why == "" {
			why += ", before it connected to the keeper"
		}
		if line := firstLine(wrote); line != "" {
			why += "; it wrote: " + line
		}
		m.step(Refused, why)
	}
}

// rollBack starts the binary before the upgrade again. That of a restart is the same: for what follows, its worker has
// crashed.
func (m *machine) rollBack(why string, now time.Time) {
	if m.standby != nil {
		m.kill(m.standby, "rolled back")
	}
	if m.from != nil {
		m.current = m.from
	}
	m.step(RolledBack, why)
	m.reason = Rollback
	if m.upgrade.Restart {
		m.reason = Crash
	}
	m.startIn(0, now)
}

// proved is called when the new worker has been ready for long enough.
func (m *machine) proved(p *peer, now time.Time) {
	m.deaths = 0
	m.step(Done, "")
	m.releaseUnused()
	if !m.cfg.KeepSelf && !m.upgrade.Restart {
		m.replacing = true
		m.port.replace(p.binary)
	}
}

// replaced is called when the keeper is another binary than before.
func (m *machine) replaced(now time.Time) {
	m.upgrade.Keeper = "upgraded"
	m.cfg.Log(Event{Kind: KeeperUpgraded, PID: m.active.pid, Binary: m.active.binary.path, Items: m.table.len()})
	m.tellUpgrade()
	if m.cfg.NotifyEvery > 0 {
		m.notifyAt = now // the program before may have told it for the last time long ago
	}
}

// notReplaced is called when the keeper could not be replaced by another binary.
func (m *machine) notReplaced(b *executable, why string) {
	m.replacing, m.executing = false, false
	m.cfg.Log(Event{Kind: KeeperKept, Binary: b.path, Text: why})
	m.upgrade.Keeper = why
	m.tellUpgrade()
}
