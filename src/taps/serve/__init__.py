"""A service that learns while it serves: HTTP, one owner for each learner, a store that loses nothing."""
