package scrape

// FaultsMost is for external tests.
const FaultsMost = faultsMost
