// Package connlimit bounds what the connections of a server can cost.
//
// A [Limit] accepts always. A connection beyond a bound is closed at once and
// counted: a listener that stops accepting leaves clients in the backlog, where
// neither they nor the operator see why nothing answers.
//
// Where connections must prove themselves, one that has not is closed after a
// fixed time, whatever state its request is in. Deadlines that net/http sets
// cannot extend that time. Unproven connections displace each other, never a
// proven one.
package connlimit
