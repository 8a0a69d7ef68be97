//! The kernel's part of the gateway: routes, rules, firewall table and sysctls that bring packets to
//! this program.
