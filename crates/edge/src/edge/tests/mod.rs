mod ends;
mod faults;
mod hostile;
mod memory;
mod network;
mod peer;
mod scripted;
mod world;
