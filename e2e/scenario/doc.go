// Package scenario holds the tests that run the whole product as processes of the operating system, disturb it on
// purpose, and judge the recorded history.
//
// ANKUSA_LONG=1 runs the long forms: more rounds, and outages as long as the promises are made for.
package scenario
