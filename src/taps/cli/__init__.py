"""One thin file a command, imported when it is used. Only here is a command line read or a line printed.

Read first: `main.py`.
"""
