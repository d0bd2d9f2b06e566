//go:build race

package probe

const raceEnabled = true // tests take ten times as long
