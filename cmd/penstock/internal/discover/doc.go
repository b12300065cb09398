// Package discover finds members in registries: each source is an [upstream.Discoverer].
//
// A source follows what its registry says, by a watch or a blocking query, and begins nothing before Watch is called. It
// reports an error for whatever it cannot understand, and then the members stay as they are; it never reports an empty
// list instead. What a registry sends is bounded in size and number, and read as it comes.
package discover
