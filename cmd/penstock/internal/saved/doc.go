// Package saved is what outlives a process: documents and values that the keeper holds for the next worker, and files that
// are written as a whole.
//
// Everything that the daemon saves is in this table. Whoever adds something adds a row, and says how a version meets what another
// one has written: an upgrade and its rollback must both find what they need.
//
// In memory that the keeper holds:
//
//	what        written by                  when                          how versions meet                       bound
//	config      keeping, Link.SaveConfig    after each apply              JSON; fields that are not known are     64 MiB, twice
//	                                                                      left out; if the text does not parse,
//	                                                                      the one before is used
//	state       keeping, Link.SaveState     when it has changed, at most  a number; another one is not read;      64 MiB, twice; 65,536
//	                                        once a second; at the end     further fields are left out             sources of a listener,
//	                                                                                                              256 events
//	history     keeping, Link.AddStart      when a worker starts          JSON; if it does not parse, it begins   64 MiB, twice
//	                                                                      anew
//	ended       keeping, Link.SaveEnded     when a worker hands over      JSON; as history                        account.MaxRecent flows
//	records     hooks, Accounting.Leave     when a worker hands over      protobuf, logs.ScopeLogs of OTLP; the   the queue of the access log
//	                                                                      word access-log.left says how many
//	counters    account, upstream, Values   in place, as they count       the names of tables and words; what     the rows of each table
//	                                                                      fits is copied                          (counts.Layout)
//	ledgers     relay, internal/ledger      in place, in each turn        version and feature bits; what cannot   a record for each flow
//	                                                                      be read ends its flows
//	a flow      hooks, State.encode         when it settles               names; bits for what is not always      what fits into the
//	                                                                      there; what is new comes last           record, or an arena
//	policy      sandboxed, policyOf         before the sandbox            JSON of package earlykeeper             512 files, the keeper's
//	                                                                                                              limit of a message
//
// On disk, in the folder of --state:
//
//	config-*.yaml  sources, goodFile.write  when a version runs that      a checksum; comments before the text,   8 MiB, and the one before
//	                                        is no trial                   of which unknown ones are left out
//	bans.json      app, bans.save           each second that has changed  JSON; fields that are not known are     lists.MaxBans
//	                                                                      left out; the keeper's state has them
//	                                                                      for the next worker
//	list-*.txt     app, saveList            when a list that is not a     a checksum, and the first line; where   lists.MaxNetworks
//	                                        file has changed, at most     it is from must be the same; it is
//	                                        once a minute; at the end     loaded again anyhow
//	members.json   upstream, AnswersFile    when answers have changed,    upstream.DecodeAnswers                  64 MiB
//	                                        at most every 3 s
//
// In etcd, for whole fleets, package fleet has the formats: versions, reports, orders and checks.
package saved
