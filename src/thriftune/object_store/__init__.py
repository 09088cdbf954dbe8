"""Where are files that several machines share? In an object store, named by a URL."""
