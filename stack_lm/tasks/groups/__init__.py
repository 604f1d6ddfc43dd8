"""Word problems of finite groups."""
