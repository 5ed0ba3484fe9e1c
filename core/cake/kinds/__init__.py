"""The base class of each kind of plugin: what an author of one file sees."""
