// SPDX-License-Identifier: GPL-2.0-only
// The topologies of the report on coupled congestion controls (CS 218): `sumlink-ns3 coupled --scenario=...`.
#pragma once

namespace coupled {

/// Performs one run; returns the program's exit code.
int Main(int argc, char **argv);

} // namespace coupled
