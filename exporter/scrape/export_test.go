package scrape

// FaultsMost is exported for external tests.
const FaultsMost = maxFaults
