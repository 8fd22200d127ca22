"""The routes: pages that show lists and plans, and forms that change something."""
