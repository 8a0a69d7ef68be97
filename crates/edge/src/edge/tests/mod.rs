mod faults;
mod network;
mod peer;
mod scripted;
mod world;
