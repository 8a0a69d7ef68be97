mod ends;
mod faults;
mod hostile;
mod network;
mod peer;
mod scripted;
mod world;
